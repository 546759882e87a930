"""Train in a temporary directory and look at what the run left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from critex.algorithms import algorithm_module, load_config
from critex.run import TIMING_FIELDS, Run, read_config

QUIET = {"tensorboard": False, "progress": False}


def metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what depends on the clock."""
    lines = (json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k not in TIMING_FIELDS} for line in lines]


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Path]:
    """train("dqn", env=…, …) → the run's directory."""

    def run_it(algorithm: str, name: str = "run", module: Any = None, **options: Any) -> Path:
        module = module or algorithm_module(algorithm)
        cfg = module.Config(out=str(tmp_path / name), **{**QUIET, **options})
        with Run.create(algorithm, cfg) as run:
            module.train(cfg, run)
        return tmp_path / name

    return run_it


def check_resume(train: Callable[..., Path], algorithm: str, **options: Any) -> list[dict[str, Any]]:
    """A run that is killed in its fourth update and resumed writes what one that was never killed writes: these lines."""
    whole = train(algorithm, "whole", **options)
    module = algorithm_module(algorithm)
    update, calls = module.Agent.update, []

    def killed(agent: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return update(agent, *args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module.Agent, "update", killed)
        train(algorithm, "killed", **options)
    path = whole.with_name("killed")
    cfg = load_config(*read_config(path))
    assert options.get("bonus") in (None, cfg.bonus)
    with Run.open(path, cfg) as run:
        assert run.step == 0  # restored when the parts are attached
        module.train(cfg, run)
    lines = metrics(whole)
    assert metrics(path) == lines
    return lines
