"""ledger.jsonl: what ran where, from when to when, with which versions, and how it ended.

Two lines for each try of a run, `began` and `ended`; only ever appended to.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from critex.run.files import disk_errors, write_all
from critex.suite.jobs import Failure, Job
from critex.suite.places import Began

LEDGER = "ledger.jsonl"


class Ledger:
    """The ledger of a directory of runs; without a directory nothing is written."""

    def __init__(self, directory: Path | None) -> None:
        self.path = directory / LEDGER if directory else None
        self._open: dict[str, dict[str, Any]] = {}
        for line in read_ledger(self.path) if self.path else ():
            self._note(line)

    def host(self, job: Job) -> str | None:
        """Where the try that has not ended runs; none where there is no such."""
        began = self._open.get(self._name(job))
        return str(began["host"]) if began else None

    def began(self, job: Job, began: Began) -> None:
        """A try began."""
        self._write("began", job, began._asdict())

    def ended(self, job: Job, outcome: str, failure: Failure | None = None) -> None:
        """A try ended: finished, failed or stopped; or it is found to have, after its launcher was killed."""
        began = self._open.get(self._name(job), {})
        where = {key: value for key, value in began.items() if key in ("host", "pid")}
        why = {"code": failure.code, "log": failure.tail} if failure else {}
        self._write("ended", job, {**where, "outcome": outcome, **why})

    def close_abandoned(self, job: Job) -> None:
        """Note the end of a try that nobody was there to see."""
        if self._name(job) in self._open and not job.in_use:
            self.ended(job, "finished" if job.finished else "abandoned")

    def _name(self, job: Job) -> str:
        """The run's directory, seen from the ledger."""
        return os.path.relpath(job.out, self.path.parent) if self.path else ""

    def _write(self, event: str, job: Job, values: dict[str, Any]) -> None:
        if not self.path:
            return
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = {"time": now, "event": event, "run": self._name(job), **values}
        self._note(line)
        with disk_errors(self.path):
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                size = os.fstat(fd).st_size
                cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"  # by a crash, in the middle of a line
                write_all(fd, b"\n" * cut + json.dumps(line, ensure_ascii=False).encode() + b"\n")
            finally:
                os.close(fd)

    def _note(self, line: dict[str, Any]) -> None:
        if line["event"] == "began":
            self._open[line["run"]] = line
        else:
            self._open.pop(line["run"], None)


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """The lines of a ledger, without those that a crash has cut; none where there is no file."""
    lines = []
    for text in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and {"event", "run"} <= line.keys():
            lines.append(line)
    return lines
