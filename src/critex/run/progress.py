"""Progress of a run: a bar on a terminal, a plain line every ten seconds elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Protocol

from critex.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

EPISODES = 100
"""The return shown is the mean extrinsic return of this many episodes."""

LINE_SECONDS = 10.0
NARROWEST_BAR, WIDEST_BAR = 8, 24


class Display(Protocol):
    """Called a few times a second, not at every step; the caller survives a closed stdout (`critex.console.lost_output`)."""

    def update(self, step: int, sps: float, mean_return: float, bonus: float) -> None:
        """Show these numbers; NaN means not known yet."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def make_display(name: str, total: int, start: int, wanted: bool) -> Display:
    """The display that suits stdout."""
    if not wanted or sys.stdout is None:
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
        """Print a line when one is due."""
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
        """Print the last state."""
        self._print()


class Bar:
    """A rich progress bar, refreshed only by `update`, without a thread."""

    def __init__(self, name: str, total: int, start: int):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = Console(file=sys.stdout)
        self._bar = BarColumn(bar_width=WIDEST_BAR)
        self._progress: RichProgress = Progress(
            TextColumn("{task.description}", markup=False),
            self._bar,
            TextColumn("{task.fields[text]}", markup=False),
            console=self._console,
            auto_refresh=False,
        )
        self._name, self._total = printable(name), total
        self._task: TaskID = self._progress.add_task("", total=total, completed=start, text="")
        self._show(start, 0.0, math.nan, math.nan)
        self._progress.start()

    def update(self, step: int, sps: float, mean_return: float, bonus: float) -> None:
        """Redraw the bar."""
        self._show(step, sps, mean_return, bonus)
        self._progress.refresh()

    def _show(self, step: int, sps: float, mean_return: float, bonus: float) -> None:
        eta = clock((self._total - step) / sps) if sps > 0 else "?"
        name, self._bar.bar_width, text = layout(
            self._console.width,
            self._name,
            {
                "steps": f"{step:,}/{self._total:,}",
                "speed": f"{sps:,.0f} steps/s",
                "return": f"return {_number(mean_return)} (last {EPISODES})",
                "bonus": f"bonus {_number(bonus)}",
                "eta": f"ETA {eta}",
            },
        )
        self._progress.update(self._task, completed=step, description=name, text=text)

    def close(self) -> None:
        """Leave the last state of the bar on the screen."""
        self._progress.stop()


def layout(width: int, name: str, parts: dict[str, str]) -> tuple[str, int, str]:
    """(name, width of the bar, text) that fit on one line of `width` columns; the least important part is dropped first."""
    parts = dict(parts)
    droppable = ["bonus", "speed", "return", "eta"]
    short = parts["return"].partition(" (")[0]
    while True:
        text = " · ".join(parts.values())
        room = width - len(text) - 2  # one column of space on either side of the bar
        limit = max(room - NARROWEST_BAR, 8)
        shown = name if len(name) <= limit else f"{name[: limit - 1]}…"
        if room - len(shown) >= NARROWEST_BAR or not droppable:
            return shown, max(min(room - len(shown), WIDEST_BAR), 1), text
        if parts.get("return", short) != short:
            parts["return"] = short
        else:
            del parts[droppable.pop(0)]


def _number(value: float) -> str:
    """Four digits, or a dash for an unknown value."""
    return "–" if math.isnan(value) else f"{value:.4g}"


def clock(seconds: float) -> str:
    """90 → 1:30, 3700 → 1:01:40."""
    minutes, s = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{s:02d}" if hours else f"{minutes}:{s:02d}"
