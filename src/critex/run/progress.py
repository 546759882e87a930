"""How a run shows itself: a bar on a terminal, a plain line every ten seconds elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

EPISODES = 100
"""The return shown is the mean extrinsic return of the last so many episodes."""

LINE_SECONDS = 10.0


class Display(Protocol):
    """Called on a time base, a few times a second, never once a step."""

    def update(self, step: int, sps: float, mean_return: float, bonus: float) -> None:
        """Show these; NaN for what is not known yet."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def make_display(name: str, total: int, start: int, wanted: bool) -> Display:
    """The display that fits stdout."""
    if not wanted:
        return Silent()
    return Bar(name, total, start) if sys.stdout.isatty() else Lines(name, total)


class Silent:
    """Shows nothing."""

    def update(self, step: int, sps: float, mean_return: float, bonus: float) -> None:
        """Nothing to show."""

    def close(self) -> None:
        """Nothing to close."""


class Lines:
    """A line every ten seconds, and one at the end."""

    def __init__(self, name: str, total: int):
        self._name, self._total = name, total
        self._next = time.perf_counter() + LINE_SECONDS
        self._last: str | None = None

    def update(self, step: int, sps: float, mean_return: float, bonus: float) -> None:
        """Print a line when it is time for one."""
        eta = clock((self._total - step) / sps) if sps > 0 else "?"
        self._last = (
            f"{self._name}: step {step:,} of {self._total:,} · {sps:,.0f} steps/s"
            f" · return {_number(mean_return)} (last {EPISODES} episodes) · bonus {_number(bonus)} · ETA {eta}"
        )
        if time.perf_counter() >= self._next:
            self._print()

    def _print(self) -> None:
        if self._last is not None:
            print(self._last, flush=True)
        self._last, self._next = None, time.perf_counter() + LINE_SECONDS

    def close(self) -> None:
        """Print how it ended."""
        self._print()


class Bar:
    """A rich progress bar, refreshed by `update` alone: no thread of its own."""

    def __init__(self, name: str, total: int, start: int):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        numbers = "{task.fields[sps]:,.0f} steps/s · return {task.fields[ret]} (last " + str(EPISODES) + ")"
        self._progress: RichProgress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn(numbers + " · bonus {task.fields[bonus]} · ETA {task.fields[eta]}"),
            console=Console(file=sys.stdout),
            auto_refresh=False,
        )
        self._total = total
        self._task: TaskID = self._progress.add_task(
            name, total=total, completed=start, sps=0.0, ret="–", bonus="–", eta="?"
        )
        self._progress.start()

    def update(self, step: int, sps: float, mean_return: float, bonus: float) -> None:
        """Draw the bar anew."""
        eta = clock((self._total - step) / sps) if sps > 0 else "?"
        shown: Any = {"sps": sps, "ret": _number(mean_return), "bonus": _number(bonus), "eta": eta}
        self._progress.update(self._task, completed=step, **shown)
        self._progress.refresh()

    def close(self) -> None:
        """Leave the last state of the bar standing."""
        self._progress.stop()


def _number(value: float) -> str:
    """Four digits, or a dash for what is not known."""
    return "–" if math.isnan(value) else f"{value:.4g}"


def clock(seconds: float) -> str:
    """90 → 1:30, 3700 → 1:01:40."""
    minutes, s = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{s:02d}" if hours else f"{minutes}:{s:02d}"
