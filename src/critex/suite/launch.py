"""Run jobs side by side: skip finished ones, resume interrupted ones, and retry crashed ones once."""

from __future__ import annotations

import socket
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path

from critex.errors import UserError
from critex.run.files import disk_errors
from critex.run.interrupt import Interrupted, StopSignals
from critex.suite.display import Show, display
from critex.suite.jobs import Failure, Job
from critex.suite.ledger import Ledger
from critex.suite.places import Began, Here, Place, Worker

PAUSE = 0.5  # seconds between two polls of the jobs
TRIES = 2
REFUSED = 2  # the exit code of a command that critex refuses: it would refuse it again


def launch(
    jobs: Sequence[Job],
    parallel: int = 2,
    title: str = "runs",
    place: Place | None = None,
    ledger: Path | None = None,
) -> list[Failure]:
    """Run every job that is not finished, `parallel` at a time; return the jobs that failed.

    With a directory as `ledger`, its ledger.jsonl records what ran where. Ctrl-C and SIGTERM ask every run to write a
    checkpoint and stop, and are then raised as `Interrupted`; the same call later continues from there. Runs in use by
    another launcher, or left running by one that was killed, are waited for and never started twice.
    """
    launcher = Launcher(jobs, parallel, place or Here(), Ledger(ledger))
    # A message would garble the live table, which shows that the runs are stopping.
    signals = StopSignals(b"")
    signals.catch()
    try:
        with display(title, jobs, parallel) as show:
            try:
                while launcher.look() and not signals.caught:
                    show(launcher.states)
                    time.sleep(PAUSE)
            finally:
                launcher.stop(show)
            show(launcher.states)
    finally:
        signals.release()
    if signals.caught:
        raise Interrupted("stopped; the same command continues from here", signals.caught)
    return launcher.failures


class Launcher:
    """Tracks which jobs are waiting, running and done."""

    def __init__(self, jobs: Sequence[Job], parallel: int, place: Place, ledger: Ledger) -> None:
        self._parallel, self._place, self._ledger = parallel, place, ledger
        self._waiting = deque(job for job in jobs if not job.finished)
        self._elsewhere: list[Job] = []  # in use by another process
        self._running: dict[Job, Worker] = {}
        self._noted: dict[Job, Began] = {}  # the running jobs whose start is in the ledger
        self._tries: Counter[Job] = Counter()
        self._failed: dict[Job, Failure] = {}
        self._finished = [job for job in jobs if job.finished]
        self._stopping = False
        for job in jobs:
            ledger.close_abandoned(job)

    @property
    def states(self) -> dict[Job, str]:
        """The state of each job, in a word or two."""
        states = dict.fromkeys(self._finished, "finished") | dict.fromkeys(self._failed, "failed")
        tried = "stopped" if self._stopping else "waits for its second try"
        states |= {job: tried if job in self._tries else "waits" for job in self._waiting}
        states |= dict.fromkeys(self._elsewhere, "runs already")
        running = "stopping" if self._stopping else "runs"
        return states | {job: running if job in self._noted else "waits for a CPU" for job in self._running}

    @property
    def failures(self) -> list[Failure]:
        """The jobs that were refused, or failed in every attempt."""
        return list(self._failed.values())

    def look(self) -> bool:
        """Collect the jobs that ended and start the next ones; return whether any job is still waiting or running."""
        self._collect()
        for job in [job for job in self._elsewhere if not job.in_use]:
            self._elsewhere.remove(job)
            self._waiting.append(job)
        while self._waiting and len(self._running) + self._neighbours < self._parallel:
            job = self._waiting.popleft()
            if job.in_use:
                self._elsewhere.append(job)
                continue
            self._ledger.close_abandoned(job)
            if job.finished:
                self._finished.append(job)
            else:
                self._start(job)
        return bool(self._waiting or self._running or self._elsewhere)

    def stop(self, show: Show = lambda _: None) -> None:
        """Ask all runs to write a checkpoint and stop, and wait for them; another Ctrl-C skips the checkpoint."""
        self._stopping = True
        while self._running:
            try:
                for worker in self._running.values():
                    worker.stop()
                while self._running:
                    show(self.states)
                    time.sleep(PAUSE / 5)
                    self._collect()
            except KeyboardInterrupt:
                continue

    @property
    def _neighbours(self) -> int:
        """How many of the runs that other launchers started are on this machine."""
        return sum(self._ledger.host(job) in (None, socket.gethostname()) for job in self._elsewhere)

    def _start(self, job: Job) -> None:
        self._tries[job] += 1
        try:
            with disk_errors(job.out.parent):
                job.out.parent.mkdir(parents=True, exist_ok=True)
            self._running[job] = self._place.start(job)
        except UserError as error:
            self._fail(job, Failure(job, REFUSED, (str(error),)))
        else:
            self._note(job)

    def _note(self, job: Job) -> None:
        """Record the start of a job in the ledger, once it has started."""
        if job not in self._noted and (began := self._running[job].began()):
            self._noted[job] = began
            self._ledger.began(job, began)

    def _collect(self) -> None:
        for job, worker in list(self._running.items()):
            self._note(job)
            code = worker.poll()
            if code is None:
                continue
            del self._running[job]
            began = self._noted.pop(job, None)
            if job.finished:  # decided by the card, not by the exit code
                self._finished.append(job)
                self._ledger.ended(job, "finished" if code == 0 else "deferred")
            elif job.in_use and not (began and job.owner == began.pid):  # another launcher's process has it
                self._elsewhere.append(job)
                self._ledger.ended(job, "deferred")
            elif self._stopping:
                self._waiting.append(job)
                self._ledger.ended(job, "stopped")
            else:
                self._fail(job, Failure(job, code, tuple(job.log_tail())))

    def _fail(self, job: Job, failure: Failure) -> None:
        self._ledger.ended(job, "failed", failure)
        if failure.code != REFUSED and self._tries[job] < TRIES:
            self._waiting.append(job)
        else:
            self._failed[job] = failure
