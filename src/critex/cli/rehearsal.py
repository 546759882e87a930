"""Set up a run without training, so that a mistake is found before the first of many runs."""

from __future__ import annotations

import copy
import io
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from critex.algorithms import algorithm_module
from critex.run import Run, choose_device, preserved_rng


class Ready(Exception):
    """The run would start now."""


class Rehearsal(Run):
    """A run that ends before its first step."""

    def steps(self, total: int, per_iteration: int = 1) -> Iterator[int]:
        raise Ready


def rehearse(algorithm: str, cfg: Any) -> None:
    """Make the environments, the agent and its explorer, in this process; a `UserError` if the run would be refused."""
    choose_device(cfg.device)  # an error if it does not exist; the GPU's memory is left to the runs
    cfg = copy.copy(cfg)
    cfg.device, cfg.env_workers = "cpu", 1
    if hasattr(cfg, "workers"):
        cfg.workers = 0
    quiet = redirect_stderr(io.StringIO())  # each run will give its notices itself
    with tempfile.TemporaryDirectory() as directory, preserved_rng(), quiet:
        cfg.out = str(Path(directory, "run"))
        try:
            with Rehearsal.create(algorithm, cfg) as run:
                algorithm_module(algorithm).train(cfg, run)
        except Ready:
            pass
