"""ledger.jsonl: what ran where and when, with which versions, and how it ended.

Two lines for each attempt at a run, `began` and `ended`; lines are only appended.
"""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from critex.data.files import write_all
from critex.run.files import disk_errors
from critex.suite.jobs import Failure, Job
from critex.suite.places import Began

LEDGER = "ledger.jsonl"


class Ledger:
    """The ledger of a directory of runs; without a directory, nothing is written."""

    def __init__(self, directory: Path | None) -> None:
        self.path = directory / LEDGER if directory else None
        # Attempts that have not ended; two launchers may each have one.
        self._open: dict[str, list[dict[str, Any]]] = {}
        for line in read_ledger(self.path) if self.path else ():
            self._note(line)

    def host(self, job: Job) -> str | None:
        """The host of the attempt that has not ended, if there is one."""
        began = self._open.get(self._name(job))
        host = began[-1].get("host") if began else None
        return None if host is None else str(host)

    @property
    def open(self) -> bool:
        """Whether some attempt has not ended."""
        return any(self._open.values())

    def began(self, job: Job, began: Began) -> None:
        """Record the start of an attempt."""
        self._write("began", job, began._asdict())

    def ended(self, job: Job, outcome: str, failure: Failure | None = None) -> None:
        """Record the end of the latest attempt: finished, failed, stopped, deferred or abandoned."""
        began = (self._open.get(self._name(job)) or [{}])[-1]
        where = {key: value for key, value in began.items() if key in ("host", "pid")}
        why = {"code": failure.code, "log": failure.tail} if failure else {}
        self._write("ended", job, {**where, "outcome": outcome, **why})

    def close_abandoned(self, job: Job) -> None:
        """Record the end of attempts whose launcher was killed; an attempt whose process is alive stays open."""
        while (began := self._open.get(self._name(job))) and not job.in_use and not _alive(began[-1]):
            self.ended(job, "finished" if job.finished else "abandoned")

    def _name(self, job: Job) -> str:
        """The run's directory, relative to the ledger."""
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
                cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"  # a crash truncated the last line
                write_all(fd, b"\n" * cut + json.dumps(line, ensure_ascii=False).encode() + b"\n")
            finally:
                os.close(fd)

    def _note(self, line: dict[str, Any]) -> None:
        attempts = self._open.setdefault(line["run"], [])
        if line["event"] == "began":
            attempts.append(line)
        else:
            where = (line.get("host"), line.get("pid"))
            attempts[:] = [began for began in attempts if (began.get("host"), began.get("pid")) != where]


def _alive(began: dict[str, Any]) -> bool:
    """Whether the process of an attempt on this machine still exists."""
    if began.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(began["pid"]), 0)
        state = Path(f"/proc/{began['pid']}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:  # no /proc on this system
        return True
    except (OSError, KeyError, TypeError, ValueError, IndexError, OverflowError):
        return False
    return state != "Z"  # dead, though nobody has waited for it


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """The lines of a ledger, without those truncated by a crash; empty if there is no file."""
    lines = []
    for text in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and "event" in line and isinstance(line.get("run"), str):
            lines.append(line)
    return lines
