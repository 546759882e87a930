"""One run as a job: what to call, where its files lie, how far they say it is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from critex.run.files import in_use
from critex.run.metrics import METRICS
from critex.run.record import CARD, CONFIG

TAIL = 5  # lines of a log that are shown of a failure


class Progress(NamedTuple):
    """How far a run is, as its metrics tell."""

    step: int = 0
    seconds: float = 0.0
    """It has been working so long, over all its resumptions."""
    last: float | None = None
    """Extrinsic return of the last episode."""


@dataclass(frozen=True)
class Job:
    """One run: `critex train …` into `out`."""

    label: str
    out: Path
    train: tuple[str, ...]
    """Arguments of `critex train`, without --out."""
    steps: int

    @property
    def finished(self) -> bool:
        return (self.out / CARD).exists()

    @property
    def in_use(self) -> bool:
        """Whether some process works on it, ours or not."""
        return in_use(self.out)

    @property
    def log(self) -> Path:
        return self.out.with_name(self.out.name + ".log")

    def arguments(self) -> list[str]:
        """`train …` for a run that is yet to begin, `resume …` for one that was interrupted.

        Paths are absolute: whoever runs it may stand in another directory.
        """
        out = str(self.out.absolute())
        if (self.out / CONFIG).exists():
            return ["resume", out]
        return ["train", *self.train, "--no-progress", "--out", out]

    def command(self) -> list[str]:
        """The whole command line, for this interpreter."""
        return [sys.executable, "-m", "critex.cli", *self.arguments()]

    def progress(self) -> Progress:
        """As far as the last lines of the metrics tell."""
        step, seconds, last = Progress()
        for line in _tail(self.out / METRICS):
            step, seconds = line.get("step", step), line.get("time", seconds)
            last = line["return"] if line.get("kind") == "episode" else last
        return Progress(step, seconds, last)

    def log_tail(self) -> list[str]:
        """The last lines of what it printed."""
        try:
            return self.log.read_text(errors="replace").strip().splitlines()[-TAIL:]
        except OSError:
            return []


@dataclass(frozen=True)
class Failure:
    """A job that ended in an error: its exit code, negative for a signal, and the end of its log."""

    job: Job
    code: int
    tail: tuple[str, ...] = ()

    @property
    def how(self) -> str:
        return f"was killed by signal {-self.code}" if self.code < 0 else f"failed with exit code {self.code}"

    def __str__(self) -> str:
        last = self.tail[-1] if self.tail else "no output"
        return f"{self.job.label} {self.how}: {last} (all of it: {self.job.log})"


def _tail(path: Path, size: int = 8192) -> Iterator[dict[str, Any]]:
    """The whole lines within the last bytes of a JSON-lines file that is being written."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - size, 0))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue  # cut at the beginning, or not written to its end yet
