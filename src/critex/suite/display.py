"""How the launcher shows itself: a live table on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING

from critex.run.progress import clock
from critex.suite.jobs import Job, Progress

if TYPE_CHECKING:
    from rich.table import Table

ROWS = 12  # a longer table shows only what runs and what failed
LINE_SECONDS = 20.0

Show = Callable[[Mapping[Job, str]], None]
"""Takes a word for each job: finished, runs, waits, …"""


@contextmanager
def display(title: str, jobs: Sequence[Job], parallel: int) -> Iterator[Show]:
    """What fits stdout."""
    from rich.console import Console
    from rich.live import Live

    board, console = Board(title, jobs, parallel), Console()
    if not console.is_terminal:
        yield Lines(board)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda states: live.update(board.table(states), refresh=True)


class Board:
    """Where the jobs stand, from their states and their metrics."""

    def __init__(self, title: str, jobs: Sequence[Job], parallel: int) -> None:
        self.title, self.jobs, self._parallel = title, jobs, parallel
        self._progress: dict[Job, Progress] = {}
        self._seen: dict[Job, str] = {}

    def progress(self, states: Mapping[Job, str]) -> dict[Job, Progress]:
        """Of every job; the files of those that cannot have moved are not read again."""
        for job in self.jobs:
            if states[job].startswith("runs") or states[job] != self._seen.get(job):
                self._progress[job] = job.progress()
            self._seen[job] = states[job]
        return self._progress

    def summary(self, states: Mapping[Job, str], progress: Mapping[Job, Progress]) -> str:
        """`mujoco-v4: 12 of 180 finished, 2 run, 166 wait · ETA 3:04:05`."""
        count = Counter(state.split()[0] for state in states.values())
        words = [f"{count['finished']} of {len(self.jobs)} finished"]
        words += [f"{count[word]} {says}" for word, says in WORDS.items() if count[word]]
        left = seconds_left(
            {job: progress[job] for job in self.jobs if going_on(states[job])}, progress, self._parallel
        )
        eta = f" · ETA {clock(left)}" if left else ""
        return f"{self.title}: {', '.join(words)}{eta}"

    def table(self, states: Mapping[Job, str]) -> Table:
        """A row for each job, or for those that run or failed where there are many."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        progress = self.progress(states)
        table = Table(
            "run", "", "steps", "steps/s", "return", "ETA", "state", title=self.summary(states, progress)
        )
        for job in self.jobs:
            state, (step, seconds, last) = states[job], progress[job]
            if len(self.jobs) > ROWS and not state.startswith(("runs", "failed")):
                continue
            speed = step / seconds if seconds else 0.0
            table.add_row(
                job.label,
                ProgressBar(job.steps, job.steps if state == "finished" else step, width=20),
                f"{step:,} / {job.steps:,}",
                f"{speed:,.0f}" if speed else "",
                "" if last is None else f"{last:.4g}",
                clock((job.steps - step) / speed) if speed and state.startswith("runs") else "",
                state,
            )
        return table


WORDS = {"runs": "run", "waits": "wait", "failed": "failed"}


def going_on(state: str) -> bool:
    """Whether a job in this state has steps to come."""
    return state not in ("finished", "failed")


def seconds_left(left: Mapping[Job, Progress], known: Mapping[Job, Progress], parallel: int) -> float | None:
    """How long the jobs `left` will take, from what a step of those `known` has cost; none while nothing is known.

    The cost of a job's step is that of the other seeds beside it, else of its algorithm, else of all jobs.
    """
    costs: dict[object, list[float]] = defaultdict(list)
    for job, (step, seconds, _) in known.items():
        if step and seconds:
            for kind in _kinds(job):
                costs[kind].append(seconds / step)
    if not costs:
        return None
    each = [
        (job.steps - step) * fmean(next(costs[kind] for kind in _kinds(job) if kind in costs))
        for job, (step, _, _) in left.items()
    ]
    return max(sum(each) / parallel, *each, 0.0)


def _kinds(job: Job) -> tuple[object, ...]:
    return job.out.parent, job.train[0], None


class Lines:
    """For a log file: a line for what has ended, and every 20 seconds where all stand."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._ended = {job for job in board.jobs if job.finished}
        if self._ended:
            print(f"{board.title}: {len(self._ended)} of {len(board.jobs)} were finished before", flush=True)
        self._next = time.monotonic() + LINE_SECONDS

    def __call__(self, states: Mapping[Job, str]) -> None:
        for job in self._board.jobs:
            if job not in self._ended and not going_on(states[job]):
                self._ended.add(job)
                count = f"{len(self._ended)} of {len(self._board.jobs)}"
                print(f"{self._board.title}: {job.label} {states[job]} ({count})", flush=True)
        if len(self._ended) < len(states) and time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_SECONDS
            progress = self._board.progress(states)
            running = [job for job in self._board.jobs if states[job].startswith("runs")]
            parts = ", ".join(f"{job.label} {100 * progress[job].step / job.steps:.0f}%" for job in running)
            print(" · ".join(filter(None, (self._board.summary(states, progress), parts))), flush=True)
