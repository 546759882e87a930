"""`import critex` loads nothing; its names load torch, numpy, scipy, gymnasium and what these need, and no more."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def loaded(statement: str, *, cwd: Path = ROOT, stdout_lines: int = 0) -> set[str]:
    """Top-level modules that a fresh interpreter has after `statement` and did not have before."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > stdout_lines
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


def distributions(*names: str) -> set[str]:
    """These distributions and everything they require, extras and other platforms aside."""
    found: set[str] = set()
    queue = list(names)
    while queue:
        name = re.sub(r"[-_.]+", "-", queue.pop()).lower()
        if name not in found:
            found.add(name)
            queue += [requirement for requirement in _requirements(name) if requirement]
    return found


def _requirements(name: str) -> list[str]:
    try:
        lines = requires(name) or []
    except ModuleNotFoundError:  # PackageNotFoundError: required on another platform only
        return []
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines if "extra ==" not in line]


def foreign(modules: set[str], *allowed: str) -> set[str]:
    """The distributions behind `modules` that are neither `allowed` nor required by them."""
    owners = packages_distributions()
    used = {re.sub(r"[-_.]+", "-", dist).lower() for module in modules for dist in owners.get(module, [])}
    return used - distributions(*allowed) - {"critex"}


def test_import_critex_loads_nothing_heavy() -> None:
    modules = loaded("import critex; dir(critex); critex.UserError")
    assert "critex" in modules
    assert not foreign(modules)


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["help", "suite", "run"],
        ["resume", "--help"],
        ["suite"],
        ["train"],
        ["regret"],
    ],
)
def test_help_does_not_load_torch(args: list[str]) -> None:
    call = (
        f"import contextlib; from critex.cli import main\nwith contextlib.suppress(SystemExit): main({args})"
    )
    modules = loaded(f"exec({call!r}, globals())", stdout_lines=1)
    assert not modules & {"torch", "numpy", "gymnasium", "scipy", "tyro", "rich"}


@pytest.mark.parametrize("args", [["trian"], ["resume", "--alow-import"], ["suite", "rum"], ["train", "td4"]])
def test_a_typo_is_found_without_torch(args: list[str]) -> None:
    call = (
        f"import contextlib; from critex.cli import main\nwith contextlib.suppress(SystemExit): main({args})"
    )
    assert "torch" not in loaded(f"exec({call!r}, globals())")


@pytest.mark.parametrize(
    "statement",
    [
        "import critex, gymnasium",
        "import gymnasium, critex",
        "import critex; critex.Gram(2); import gymnasium",
        "import critex.cli, critex.envs, gymnasium",
    ],
)
def test_the_built_in_environments_are_registered_in_any_order(statement: str) -> None:
    loaded(f"{statement}; gymnasium.make('DeepSea-10-v0')")


def test_the_public_names_load_no_more_than_they_need() -> None:
    modules = loaded("from critex import CAE, CAEPlus, Gram, last_hidden")
    assert {"critex", "torch"} <= modules
    # What these four pick up on their own where it happens to be installed is not our doing.
    modules -= loaded("import torch, numpy, scipy.linalg, gymnasium")
    assert not foreign(modules, "torch", "numpy", "scipy", "gymnasium")


def test_a_heavy_import_would_be_seen() -> None:
    modules = loaded("import tyro, rich, matplotlib")
    assert {"tyro", "rich", "matplotlib"} <= foreign(modules, "torch", "numpy", "scipy", "gymnasium")


def test_the_bonus_folder_works_alone(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src/critex/bonus", tmp_path / "taken")
    modules = loaded("import taken; taken.Gram(3)", cwd=tmp_path)
    assert "critex" not in modules
    modules -= loaded("import torch, numpy, scipy.linalg")
    assert not foreign(modules, "torch", "numpy", "scipy")
