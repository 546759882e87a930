# One way to run everything. `make help` lists it; every target sets up what it needs in .venv by itself.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage test-rllib torture check format wheel bench docs docs-serve clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What each purpose installs beside the core.
extras_demo := report,tensorboard
extras_dev := dev,mujoco,minigrid,minihack,vizdoom,ray,sb3,torchrl,report,tensorboard

# The docs site is built from the sources alone: no torch, no simulator.
docs_packages := mkdocs mkdocs-material pymdown-extensions latex2mathml mkdocstrings-python

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.dev ## make .venv with all that test and check need
	@echo "==> $(VENV) is ready: source $(BIN)/activate"

demo: $(VENV)/.demo ## DQN with and without CAE, and a page that shows the difference
	@$(BIN)/critex demo

test: $(VENV)/.dev ## run the tests
	@echo "==> pytest"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(COVERAGE) $(ARGS)

coverage: COVERAGE = --cov --cov-report=term:skip-covered
coverage: test ## the tests, and which lines they run (a third slower)

test-rllib: $(VENV)-rllib/.done ## the tests of the RLlib plug-in, which needs an environment of its own
	@OMP_NUM_THREADS=1 $(VENV)-rllib/bin/python -m pytest tests/plugins/test_rllib.py $(ARGS)

torture: $(VENV)/.dev ## kills, damage, full disks, bad input: minutes, or hours with ARGS="--scale 100"
	@OMP_NUM_THREADS=1 $(BIN)/python tests/torture/torture.py $(ARGS)

check: $(VENV)/.dev ## format, lint, types, package rules
	@echo "==> ruff format"
	@$(BIN)/ruff format --check .
	@echo "==> ruff check"
	@$(BIN)/ruff check .
	@echo "==> mypy --strict src"
	@$(BIN)/mypy
	@echo "==> package rules"
	@PYTHONPATH=src $(BIN)/lint-imports --no-logo

format: $(VENV)/.dev ## rewrite the code in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

wheel: $(VENV)/.dev ## build the wheel and train with it outside of the checkout
	@echo "==> wheel"
	@rm -rf dist && $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . 2>/dev/null
	@tools/try-wheel "$$(pwd)/$(BIN)/python" "$$(pwd)"/dist/critex-*.whl

bench: $(VENV)/.dev ## measure the speed and the accuracy of the bonus on this machine
	@echo "==> benchmarks/bonus.py"
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/bonus.py
	@echo "==> benchmarks/drift.py"
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/drift.py

docs: $(VENV)-docs/.done ## build the documentation into site/
	@echo "==> mkdocs"
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict
	@echo "==> open site/index.html"

docs-serve: $(VENV)-docs/.done ## documentation at localhost:8000, rebuilt as you write
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs serve

clean: ## remove .venv, caches and built files (never your runs)
	rm -rf $(VENV) $(VENV)-docs $(VENV)-rllib site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# ------------------------------------------------------------------------------------------------ set-up

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		f"critex needs Python 3.11 or later, this is {sys.version.split()[0]}: make PYTHON=python3.12 setup")'
	@echo "==> making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# A stamp per purpose: reinstalled when pyproject.toml or constraints.txt is newer, else nothing to do.
$(VENV)/.%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing critex[$(extras_$*)] (minutes the first time, seconds after)"
	@$(BIN)/python -m pip install -c constraints.txt -e '.[$(extras_$*)]' 2>$(VENV)/pip.err \
		| awk '/^(Collecting|Processing)/ { sub(/.*\//, "", $$2); sub(/(-[0-9]|[<>=!~;\[(]).*/, "", $$2); printf "%s ", $$2; fflush(); n++ } \
		       /^Installing collected/ { printf "\n    installing %d packages\n", n + 1; fflush() }' \
		|| { grep -v '^WARNING' $(VENV)/pip.err; exit 1; }
	@touch $@

$(VENV)-docs/.done: Makefile constraints.txt
	@echo "==> installing what the docs need"
	@$(PYTHON) -m venv $(VENV)-docs
	@$(VENV)-docs/bin/python -m pip install --quiet -c constraints.txt $(docs_packages) 2>/dev/null
	@touch $@

# RLlib pins another gymnasium than NLE does.
$(VENV)-rllib/.done: pyproject.toml
	@echo "==> installing critex[rllib] (minutes the first time)"
	@$(PYTHON) -m venv $(VENV)-rllib
	@$(VENV)-rllib/bin/python -m pip install --quiet torch==2.13.0 2>/dev/null
	@$(VENV)-rllib/bin/python -m pip install --quiet -e '.[rllib]' pytest hypothesis 2>/dev/null
	@touch $@
