"""Metric sinks: TensorBoard if it is installed, Weights & Biases on request."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from critex.errors import UserError
from critex.run.config import RunConfig
from critex.run.files import disk_errors

TENSORBOARD = "tensorboard"


class Sink(Protocol):
    """Takes every line of metrics.jsonl."""

    def write(self, line: Mapping[str, Any]) -> None:
        """One line."""

    def close(self) -> None:
        """No more lines."""


def open_sinks(run: Path, options: RunConfig, config: dict[str, Any], run_id: str, step: int) -> list[Sink]:
    """The sinks enabled by the options; their entries after `step` are dropped, because they will be logged again."""
    sinks: list[Sink] = []
    if options.tensorboard:
        with contextlib.suppress(ImportError):
            sinks.append(TensorBoard(run, step))
    if options.wandb:
        sinks.append(WandB(run, config, run_id))
    return sinks


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line as `kind/name`."""
    kind = line["kind"]
    skipped = ("kind", "step", "time")
    return {f"{kind}/{k}": v for k, v in line.items() if k not in skipped and type(v) in (int, float)}


class TensorBoard:
    """Event files in <run>/tensorboard."""

    def __init__(self, run: Path, step: int):
        from torch.utils.tensorboard import SummaryWriter

        self._path = run / TENSORBOARD
        with disk_errors(self._path):
            purge = step + 1 if self._path.exists() else None
            self._writer = SummaryWriter(str(self._path), purge_step=purge, flush_secs=10)

    def write(self, line: Mapping[str, Any]) -> None:
        """Every number of the line."""
        with disk_errors(self._path):
            for name, value in scalars(line).items():
                self._writer.add_scalar(name, value, line["step"])

    def close(self) -> None:
        """Write what is buffered."""
        with disk_errors(self._path):
            self._writer.close()


class WandB:
    """A Weights & Biases run, continued by a resumed run; it ignores steps that were logged before."""

    def __init__(self, run: Path, config: dict[str, Any], run_id: str):
        try:
            import wandb
        except ImportError as error:
            raise UserError("wandb is not installed; install it with: pip install 'critex[wandb]'") from error
        logging.getLogger("wandb").setLevel(logging.WARNING)
        self._run = wandb.init(
            project="critex", name=run.name, id=run_id, resume="allow", dir=str(run), config=config
        )

    def write(self, line: Mapping[str, Any]) -> None:
        """Every number of the line."""
        self._run.log(scalars(line), step=line["step"])

    def close(self) -> None:
        """Finish the upload."""
        self._run.finish()
