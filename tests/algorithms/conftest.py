"""Train in a temporary directory and look at what the run left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from critex.algorithms import algorithm_module
from critex.run import TIMING_FIELDS, Run

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
