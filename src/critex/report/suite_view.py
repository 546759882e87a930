"""The overview of a suite on its page: table, curves of all tasks, costs, wall clock, links to the runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from critex.report.figures import write_csv
from critex.report.page import curve_data
from critex.report.panels import bases, draw_panels, panel_rows, panels
from critex.results.cells import Cells
from critex.results.formatting import ABSENT, number, text
from critex.results.runs import RunData
from critex.tables.formats import FORMATS, cell_sheet, notes, task_sheet
from critex.tables.grid import Grid

FILES = {"csv": "csv", "md": "markdown", "tex": "latex"}


@dataclass(frozen=True)
class Clock:
    """Mean wall clock of the finished runs of one cell; NaN if there are none."""

    task: str
    method: str
    ms: float
    """Milliseconds per environment step, learning included."""
    hours: float
    """Hours per run."""
    ratio: float
    """`ms` relative to the baseline on the same task."""


def suite_view(grid: Grid, cells: Cells, key: str, out: Path) -> dict[str, Any]:
    """Write table.*, curves.* and costs.csv, and return what the template shows."""
    for suffix, name in FILES.items():
        (out / f"table.{suffix}").write_text(FORMATS[name](grid), encoding="utf-8")
    shown = panels(grid, cells, key)
    if shown:
        draw_panels(shown, out / "curves.png", out / "curves.svg")
        write_csv(out / "curves.csv", panel_rows(shown))
    clock = clocks(grid, cells)
    write_csv(out / "costs.csv", cost_rows(clock, cells))
    timed = [c for c in clock if not math.isnan(c.ms)]
    several = len(bases(grid)) > 1
    return {
        "title": grid.title,
        "notes": notes(grid),
        "cells": cell_sheet(grid),
        "over_tasks": task_sheet(grid) if grid.comparisons else None,
        "panels": [
            {
                "title": f"{panel.task}, {panel.base}" if several else panel.task,
                "methods": [(i, panel.methods[i].label) for i in panel.figure.curves],
                "data": {
                    "labels": [method.label for method in panel.methods],
                    "curves": {key: curve_data(panel.figure, seeds=False)},
                },
            }
            for panel in shown
        ],
        # The longest one also says that some runs have stopped.
        "caption": max((panel.figure.caption for panel in shown), key=len, default=""),
        "key": key,
        "cards": cards(grid, cells, clock),
        "clock": [(task, list(rows)) for task, rows in groupby(timed, key=lambda c: c.task)],
        "slowest": max((c.ms for c in timed), default=math.nan),
        "links": [
            (task, method, [(run.seed, link(run.path, out), run.finished) for run in runs])
            for (task, method), runs in cells.items()
        ],
    }


def link(path: Path, out: Path) -> str:
    """The path of a run relative to the report directory."""
    return Path(os.path.relpath(path.resolve(), out.resolve())).as_posix()


def clocks(grid: Grid, cells: Cells) -> list[Clock]:
    """The wall clock of every cell of the table."""

    def ms(task: str, method: str) -> float:
        return _mean(1000 * c["seconds"] / c["env_steps"] for c in _timed(cells.get((task, method), ())))

    return [
        Clock(
            task,
            method,
            ms(task, method),
            hours=_mean(c["seconds"] / 3600 for c in _timed(cells.get((task, method), ()))),
            ratio=ms(task, method) / ms(task, grid.baseline_of[method])
            if method in grid.baseline_of
            else math.nan,
        )
        for task, method in grid.cells
    ]


def _timed(runs: Sequence[RunData]) -> list[dict[str, float]]:
    """Cards with a wall clock; a reference, which has no parameters, only plays evaluations."""
    return [
        run.card
        for run in runs
        if run.card.get("seconds") and run.card.get("env_steps") and run.card.get("parameters") != 0
    ]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return float(np.mean(listed)) if listed else math.nan


def cards(grid: Grid, cells: Cells, clock: Sequence[Clock]) -> list[dict[str, Any]]:
    """The cost of each method: ranges over tasks, geometric mean of the slowdown, total hours."""
    found = []
    for method in grid.methods:
        runs = [run for (_, m), each in cells.items() if m == method for run in each if run.card]
        mine = [c for c in clock if c.method == method]
        ratios = [c.ratio for c in mine if not math.isnan(c.ratio)]
        costs = {
            "Parameters added": _range([run.card.get("parameters_added") for run in runs]),
            "Parameters of the agent": _range([run.card.get("parameters") for run in runs]),
            "Wall clock, per step": _range([c.ms for c in mine], "ms"),
            "Bonus, per step": _range([run.card.get("bonus_us_per_step") for run in runs], "µs"),
            "Hours, all runs": text(sum(c["seconds"] for c in _timed(runs)) / 3600),
        }
        if method in grid.baseline_of:
            slower = text(float(np.exp(np.mean(np.log(ratios))))) if ratios else ABSENT
            costs[f"Wall clock over {grid.baseline_of[method]}"] = f"× {slower}"
        found.append({"label": method, "runs": len(runs), "costs": costs})
    return found


def _range(values: Sequence[float | None], unit: str = "") -> str:
    """`smallest – largest`, or the one value if all are equal."""
    known = [v for v in values if v is not None and not math.isnan(v)]
    ends = list(dict.fromkeys((text(min(known)), text(max(known))))) if known else [ABSENT]
    return f"{' – '.join(ends)} {unit}".strip()


def cost_rows(clock: Sequence[Clock], cells: Cells) -> Iterable[list[str]]:
    """task, method, ms per step, its ratio to the baseline, hours per run, parameters of the agent and added."""
    yield ["task", "method", "ms per step", "over base", "hours", "parameters", "parameters added"]
    for c in clock:
        finished = [run.card for run in cells.get((c.task, c.method), ()) if run.card]
        counts = [
            _mean(card[k] for card in finished if k in card) for k in ("parameters", "parameters_added")
        ]
        yield [c.task, c.method, *map(number, (c.ms, c.ratio, c.hours, *counts))]
