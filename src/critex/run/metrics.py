"""metrics.jsonl: one JSON object per line. Lines are appended; a resumed run first drops those after its checkpoint.

Every line has `kind` ("episode", "train" or "eval"), `step` (environment steps taken) and `time`. The fields
named in `TIMING_FIELDS` depend on the machine; the others are the same in every repetition of the run.
NaN and the infinities, which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from critex.data.files import Damaged, open_file, read_file, write_all
from critex.errors import UserError
from critex.ranges import LARGEST
from critex.run.files import disk_errors

METRICS = "metrics.jsonl"
TIMING_FIELDS = ("time", "sps")
"""time: seconds of training, without the time between a stop and a resume. sps: environment steps per second."""

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def plain_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with tensors converted to numbers."""
    return {key: value.item() if isinstance(value, torch.Tensor) else value for key, value in values.items()}


def encode_line(line: Mapping[str, Any]) -> bytes:
    """One line of the file."""
    return json.dumps({k: _finite(v) for k, v in line.items()}, allow_nan=False).encode() + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return [_finite(item) for item in value] if isinstance(value, list) else value


class MetricsFile:
    """Appends lines: `flush` hands them to the operating system, `sync` waits until they are on the disk."""

    def __init__(self, path: Path, hint: str = ""):
        self.path, self._hint = path, hint
        self._buffer: list[bytes] = []
        with disk_errors(path):
            self._fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line."""
        self._buffer.append(encode_line(line))

    def flush(self) -> None:
        """Hand the lines to the operating system; they then survive a kill of the process."""
        if self._buffer:
            data, self._buffer = b"".join(self._buffer), []
            with disk_errors(self.path, self._hint):
                write_all(self._fd, data)

    def sync(self) -> int:
        """Write the lines to the disk and return the length of the file in bytes."""
        self.flush()
        with disk_errors(self.path, self._hint):
            os.fsync(self._fd)
            return os.fstat(self._fd).st_size

    def truncate(self, length: int) -> None:
        """Drop the lines written after the checkpoint that recorded this length; `Damaged` if the file is shorter."""
        with disk_errors(self.path):
            size = os.fstat(self._fd).st_size
            if size < length:
                raise Damaged(f"{self.path} has {size} bytes, fewer than the {length} at this checkpoint")
            os.ftruncate(self._fd, length)

    def close(self) -> None:
        """Flush and close."""
        if self._fd >= 0:
            try:
                self.flush()
            finally:
                os.close(self._fd)
                self._fd = -1


def read_metrics(path: Path | str, broken: list[str] | None = None) -> list[dict[str, Any]]:
    """Every line of a metrics.jsonl (or of the run directory that holds it).

    An invalid line is a `UserError` with file and line number. With a list as `broken`, such lines are left out,
    and the list receives one sentence for each.
    """
    path = Path(path)
    path = path / METRICS if path.is_dir() else path
    try:
        text = read_file(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    lines = []
    for number, data in enumerate(text.splitlines(), start=1):
        try:
            line = _checked(json.loads(data))
        except (ValueError, RecursionError) as error:
            no_json = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
            problem = f"{path}, line {number} is broken: {'not JSON' if no_json else error}"
            if broken is None:
                raise UserError(problem) from error
            broken.append(problem)
        else:
            lines.append(line)
    return lines


def _checked(line: Any) -> dict[str, Any]:
    """The line with its numbers restored; a `ValueError` if it is not a line of metrics."""
    if not isinstance(line, dict):
        raise ValueError("not a JSON object")
    if not isinstance(line.get("kind"), str) or type(line.get("step")) is not int:
        raise ValueError("it lacks a kind or a step")
    restored = {key: _restored(value) for key, value in line.items()}
    for key, value in restored.items():
        if key != "kind" and not isinstance(value, int | float | list):
            raise ValueError(f"{key} is {value!r}, not a number")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ValueError(f"{key} is too large")
    return restored


def _restored(value: Any) -> Any:
    if isinstance(value, str):
        return _SPECIAL.get(value, value)
    return [_restored(item) for item in value] if isinstance(value, list) else value
