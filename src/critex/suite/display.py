"""The launcher's display: a live table on a terminal, an occasional line elsewhere."""

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

ROWS = 12  # with more jobs, the table shows only those that run or failed
WIDE = 110  # narrower terminals get no progress bars, so that no column is truncated
LINE_SECONDS = 20.0

Show = Callable[[Mapping[Job, str]], None]
"""Takes the state of each job: finished, runs, waits, …"""


@contextmanager
def display(title: str, jobs: Sequence[Job], parallel: int) -> Iterator[Show]:
    """The display that suits stdout."""
    from rich.console import Console, Group
    from rich.live import Live

    board, console = Board(title, jobs, parallel), Console()
    if not console.is_terminal:
        yield LogLines(board)
        return
    with Live(console=console, auto_refresh=False) as live:
        # The cursor rests on an empty last line. After a row as wide as the terminal, the ^C that the terminal echoes would
        # wrap to the next line, and the next refresh would leave the old title standing.
        yield lambda states: live.update(Group(board.table(states, console.width), ""), refresh=True)


class Board:
    """The progress of all jobs, from their states and their metrics."""

    def __init__(self, title: str, jobs: Sequence[Job], parallel: int) -> None:
        self.title, self.jobs, self._parallel = title, jobs, parallel
        self._progress: dict[Job, Progress] = {}
        self._seen: dict[Job, str] = {}
        self._started: dict[Job, tuple[float, float]] = {}  # when, and training time by then
        self._start_up: dict[Job, float] = {}  # wall clock that was not training time

    def progress(self, states: Mapping[Job, str]) -> dict[Job, Progress]:
        """The progress of every job; files of jobs that cannot have moved are not read again."""
        now = time.monotonic()
        for job in self.jobs:
            runs, before = states[job].startswith("runs"), self._seen.get(job)
            if runs or states[job] != before:
                self._progress[job] = job.progress()
            trained = self._progress[job].seconds
            if runs and not (before or "").startswith("runs"):
                self._started[job] = (now, trained)
            elif job in self._started and trained > self._started[job][1] and before == "runs":
                since, already = self._started[job]
                self._start_up[job] = max(now - since - (trained - already), 0.0)
            self._seen[job] = states[job]
        return self._progress

    def summary(self, states: Mapping[Job, str], progress: Mapping[Job, Progress]) -> str:
        """`mujoco-v4: 12 of 180 finished, 2 run, 166 wait · ETA 3:04:05`."""
        count = Counter(state.split()[0] for state in states.values())
        words = [f"{count['finished']} of {len(self.jobs)} finished"]
        words += [f"{count[state]} {verb}" for state, verb in VERBS.items() if count[state]]
        open_jobs = {job: progress[job] for job in self.jobs if is_open(states[job])}
        start_up = fmean(self._start_up.values()) if self._start_up else 0.0
        left = seconds_left(open_jobs, progress, self._parallel, start_up)
        eta = f" · ETA {clock(left)}" if left else ""
        return f"{self.title}: {', '.join(words)}{eta}"

    def table(self, states: Mapping[Job, str], width: int = WIDE) -> Table:
        """One row per job or, if there are many, per job that runs or failed."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        progress = self.progress(states)
        table = Table(title=self.summary(states, progress), title_justify="left")
        table.add_column("run", overflow="fold")
        if width >= WIDE:
            table.add_column("")
        for name in ("steps", "steps/s", "return", "ETA", "state"):
            table.add_column(name, no_wrap=name != "state")
        for job in self.jobs:
            state, (step, seconds, last) = states[job], progress[job]
            if len(self.jobs) > ROWS and not state.startswith(("runs", "stopping", "failed")):
                continue
            speed = step / seconds if seconds else 0.0
            done = job.steps if state == "finished" else step
            bar = [ProgressBar(job.steps, done, width=20)] if width >= WIDE else []
            steps = f"{step:,} / {job.steps:,}" if width >= WIDE else f"{100 * done / job.steps:.0f}%"
            table.add_row(
                job.label,
                *bar,
                steps,
                f"{speed:,.0f}" if speed else "",
                "" if last is None else f"{last:.4g}",
                clock((job.steps - step) / speed) if speed and state.startswith("runs") else "",
                state,
            )
        if not table.row_count:  # many jobs, and none has started yet: the title alone
            table.show_header, table.box = False, None
        return table


VERBS = {"runs": "run", "stopping": "stopping", "stopped": "stopped", "waits": "wait", "failed": "failed"}


def is_open(state: str) -> bool:
    """Whether a job in this state still has steps to take."""
    return state not in ("finished", "failed")


def seconds_left(
    left: Mapping[Job, Progress], known: Mapping[Job, Progress], parallel: int, start_up: float = 0.0
) -> float | None:
    """Time until the jobs `left` are done, `parallel` at a time; None while nothing is known.

    The time per step is that of the job's other seeds, else of its algorithm, else of all jobs. A job that has not
    taken a step yet also has to start, which takes `start_up` seconds.
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
        + (0.0 if step else start_up)
        for job, (step, _, _) in left.items()
    ]
    return max(sum(each) / parallel, *each, 0.0)


def _kinds(job: Job) -> tuple[object, ...]:
    return job.out.parent, job.train[0], None


class LogLines:
    """For a log file: one line when a job ends, and a summary of all jobs every 20 seconds."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._ended = {job for job in board.jobs if job.finished}
        if self._ended:
            count = f"{len(self._ended)} of {len(board.jobs)}"
            print(f"{board.title}: {count} were already finished", flush=True)
        self._next = time.monotonic() + LINE_SECONDS

    def __call__(self, states: Mapping[Job, str]) -> None:
        for job in self._board.jobs:
            if job not in self._ended and not is_open(states[job]):
                self._ended.add(job)
                count = f"{len(self._ended)} of {len(self._board.jobs)}"
                print(f"{self._board.title}: {job.label} {states[job]} ({count})", flush=True)
        if len(self._ended) < len(states):
            progress = self._board.progress(states)
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + LINE_SECONDS
                running = [job for job in self._board.jobs if states[job].startswith("runs")]
                parts = ", ".join(
                    f"{job.label} {100 * progress[job].step / job.steps:.0f}%" for job in running
                )
                print(" · ".join(filter(None, (self._board.summary(states, progress), parts))), flush=True)
