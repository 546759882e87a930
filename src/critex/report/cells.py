"""The runs of a suite's directory, `DIR/<task>/<method>/seed-<n>`, cell by cell."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from critex.errors import UserError
from critex.report.methods import Method, protocol_score
from critex.report.runs import RunData, load_run
from critex.report.tables import Cell, Grid, Score

Cells = dict[Cell, tuple[RunData, ...]]


def load_cells(directory: Path, tasks: Iterable[str], methods: Sequence[str], problems: list[str]) -> Cells:
    """The usable runs of every cell by seed; `problems` receives a line for each thing that is wrong.

    A directory without runs, or none at all, has no cells.
    """
    cells: Cells = {}
    for task in tasks:
        for method in methods:
            runs: dict[int, RunData] = {}
            for path in sorted(filter(Path.is_dir, (directory / task / method).glob("seed-*"))):
                try:
                    run = load_run(path, problems)
                    if run.env.partition("?")[0] != task:
                        raise UserError(f"{path} is a run of {run.env}, not of {task}")
                    if runs.setdefault(run.seed, run) is not run:
                        raise UserError(f"{path} repeats seed {run.seed} of {runs[run.seed].path}")
                except UserError as error:
                    problems.append(f"{error}; left out")
            if runs:
                cells[task, method] = tuple(runs[seed] for seed in sorted(runs))
    return cells


def scores(cells: Cells, problems: list[str], card: Sequence[str] = ()) -> dict[Cell, list[Score]]:
    """The final score of each run: `protocol_score`, or the sum of these numbers of its card."""
    found: dict[Cell, list[Score]] = {}
    for cell, runs in cells.items():
        for run in runs:
            value = sum(run.card.get(name, math.nan) for name in card) if card else protocol_score(run)
            if not math.isnan(value):
                found.setdefault(cell, []).append(Score(run.seed, value, run.steps, run.finished))
            elif not card:
                kind = "evaluation (see --eval-every)" if run.algorithm == "dsac" else "training episode"
                problems.append(f"{run.path} has no {kind} to be scored by; left out")
    return found


def methods_of(cells: Mapping[Cell, tuple[RunData, ...]], grid: Grid, task: str) -> list[Method]:
    """The methods that were run on a task, in the order of the table and by its names."""
    return [
        Method(task, method, runs[0].config, runs)
        for method in grid.columns
        if (runs := cells.get((task, method)))
    ]


def link(path: Path, out: Path) -> str:
    """Where a run lies, as seen from the directory of a report."""
    return Path(os.path.relpath(path.resolve(), out.resolve())).as_posix()
