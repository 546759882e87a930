"""Run jobs side by side in single-threaded processes: finished ones are skipped, interrupted ones go on.

Two single-threaded processes are faster than one with two threads, so seeds run beside each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from critex.run.files import disk_errors

PAUSE = 0.5  # seconds between two looks at the jobs


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
        return (self.out / "card.json").exists()

    @property
    def log(self) -> Path:
        return self.out.with_name(self.out.name + ".log")

    def command(self) -> list[str]:
        begun = (self.out / "config.toml").exists()
        action = (
            ["resume", str(self.out)]
            if begun
            else ["train", *self.train, "--no-progress", "--out", str(self.out)]
        )
        return [sys.executable, "-m", "critex.cli", *action]

    def progress(self) -> tuple[int, float | None]:
        """(step, the last extrinsic return), as far as the metrics tell."""
        step, last = 0, None
        for line in _tail(self.out / "metrics.jsonl"):
            step, last = line.get("step", step), line["return"] if line.get("kind") == "episode" else last
        return step, last


@dataclass(frozen=True)
class Failure:
    """A job that ended in an error."""

    job: Job
    code: int

    def __str__(self) -> str:
        lines = self.job.log.read_text(errors="replace").strip().splitlines() if self.job.log.exists() else []
        last = lines[-1] if lines else "no output"
        return f"{self.job.label} failed with exit code {self.code}: {last} (all of it: {self.job.log})"


def launch(jobs: Sequence[Job], parallel: int = 2, title: str = "runs") -> list[Failure]:
    """Run every job that is not finished, `parallel` at a time; what failed is returned, the rest is done.

    Ctrl-C reaches the runs too: each writes a checkpoint, and the same call later goes on from there. Runs that
    outlive a killed launcher go on by themselves; one that is finished in the end has not failed.
    """
    waiting = [job for job in jobs if not job.finished]
    running: dict[Job, subprocess.Popen[bytes]] = {}
    failures: list[Failure] = []
    with _display(title, jobs) as show:
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    job = waiting.pop(0)
                    running[job] = _start(job)
                for job, process in list(running.items()):
                    if process.poll() is not None:
                        del running[job]
                        if process.returncode:
                            failures.append(Failure(job, process.returncode))
                show(running, failures)
                if running:
                    time.sleep(PAUSE)
        finally:
            for process in running.values():
                process.wait()
    return [failure for failure in failures if not failure.job.finished]


def _start(job: Job) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with disk_errors(job.out.parent):
        job.out.parent.mkdir(parents=True, exist_ok=True)
        log = job.log.open("ab")
    with log:
        return subprocess.Popen(job.command(), stdout=log, stderr=log, env=environment)


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


class Show(Protocol):
    """Tells the person at the terminal where the jobs stand."""

    def __call__(self, running: dict[Job, Any], failures: list[Failure]) -> None:
        """Show where the jobs stand."""


@contextmanager
def _display(title: str, jobs: Sequence[Job]) -> Iterator[Show]:
    """A live bar per job on a terminal; elsewhere a line per change and now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console()
    if not console.is_terminal:
        yield _Plain(title, jobs)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bars = {
            job: progress.add_task(job.label, total=job.steps, state="waits", start=False) for job in jobs
        }

        def show(running: dict[Job, Any], failures: list[Failure]) -> None:
            failed = {failure.job for failure in failures}
            for job, bar in bars.items():
                step, last = job.progress()
                if job in failed:
                    state = "failed"
                elif job.finished:
                    state, step = "finished", job.steps
                elif job in running:
                    state = "runs" if last is None else f"return {last:.3g}"
                    progress.start_task(bar)
                else:
                    state = "waits"
                progress.update(bar, completed=step, state=state)

        yield show


class _Plain:
    """Lines for a log file: what began to run and what ended, and every 20 seconds where all stand."""

    def __init__(self, title: str, jobs: Sequence[Job]) -> None:
        self._title, self._jobs = title, jobs
        self._finished: set[Job] = set()
        self._next = time.monotonic() + 20

    def __call__(self, running: dict[Job, Any], failures: list[Failure]) -> None:
        for job in self._jobs:
            if job.finished and job not in self._finished:
                self._finished.add(job)
                print(
                    f"{self._title}: {job.label} finished ({len(self._finished)} of {len(self._jobs)})",
                    flush=True,
                )
        if running and time.monotonic() >= self._next:
            self._next = time.monotonic() + 20
            states = (f"{job.label} {100 * job.progress()[0] / job.steps:.0f}%" for job in running)
            print(f"{self._title}: {', '.join(states)}", flush=True)
