"""One run as a job: its command, its files, and its progress."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from critex.run.files import LOCK, in_use
from critex.run.metrics import METRICS
from critex.run.record import CARD, CONFIG

T = TypeVar("T")
TAIL = 5  # lines of a failed job's log to show


class Progress(NamedTuple):
    """The progress of a run, according to its metrics."""

    step: int = 0
    seconds: float = 0.0
    """Training time, over all resumptions."""
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
        """Whether some process, ours or another's, is working on it."""
        return in_use(self.out)

    @property
    def owner(self) -> int | None:
        """The process that last worked on it."""
        try:
            return int((self.out / LOCK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    @property
    def log(self) -> Path:
        return self.out.with_name(self.out.name + ".log")

    def arguments(self) -> list[str]:
        """`train …` for a new run, `resume …` for an interrupted one.

        Paths are absolute, because a node of a cluster may run it from another directory.
        """
        out = str(self.out.absolute())
        if (self.out / CONFIG).exists():
            words = " ".join(self.train).replace("=", " ").split()
            own_env = any(":" in word for flag, word in pairwise(words) if flag in ("--env", "--eval-env"))
            return ["resume", out, *(["--allow-import"] if own_env else [])]
        return ["train", *self.train, "--no-progress", "--out", out]

    def progress(self) -> Progress:
        """Read from the last lines of the metrics."""
        step, seconds, last = Progress()
        for line in _tail(self.out / METRICS):
            step, seconds = int(_number(line, "step", step)), _number(line, "time", seconds)
            last = _number(line, "return", last) if line.get("kind") == "episode" else last
        return Progress(step, seconds, last)

    def log_tail(self) -> list[str]:
        """The last lines of its output."""
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
        if self.code < 0:
            return f"was killed by signal {-self.code}"
        return f"failed with exit code {self.code}" if self.code else "ended before it was finished"

    def __str__(self) -> str:
        last = self.tail[-1] if self.tail else "no output"
        return f"{self.job.label} {self.how}: {last} (full log: {self.job.log})"


def _tail(path: Path, size: int = 8192) -> Iterator[dict[str, Any]]:
    """The complete lines within the last bytes of a JSON-lines file that is being written."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - size, 0))
            lines = file.read().split(b"\n")
    except OSError:  # not there yet, or no file
        return
    for line in lines:
        try:
            values = json.loads(line)
            if isinstance(values, dict):
                yield values
        except (ValueError, RecursionError):
            continue  # truncated at either end


def _number(line: dict[str, Any], name: str, other: T) -> float | T:
    """A number of a line; `other` if it is missing or not a finite number."""
    value = line.get(name)
    return value if isinstance(value, int | float) and abs(value) < math.inf else other
