"""The runs of a suite's directory, `DIR/<task>/<method>/seed-<n>`, cell by cell."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from critex.errors import UserError
from critex.report.methods import Method
from critex.report.runs import RunData, load_run
from critex.report.stats import final_evaluations, final_score
from critex.report.tables import Cell, Grid, Score

Cells = dict[Cell, tuple[RunData, ...]]


def load_cells(directory: Path, cells: Iterable[Cell], problems: list[str]) -> Cells:
    """The usable runs of these cells by seed; `problems` receives a line for each thing that is wrong.

    A directory without runs, or none at all, has no cells.
    """
    found: Cells = {}
    for task, method in cells:
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
            found[task, method] = tuple(runs[seed] for seed in sorted(runs))
    return found


def of_episodes(run: RunData) -> float:
    """Mean extrinsic return of the last 100 training episodes."""
    return final_score(run.returns)


def of_evaluations(run: RunData) -> float:
    """Mean of the last tenth of the evaluations; the last one alone of a run that ends by itself at its goal."""
    values = run.series["evaluation"][1]
    return final_evaluations(values if run.config.get("stop_return") is None else values[-1:])


def of_parameters(run: RunData) -> float:
    """Parameters of agent and explorer."""
    return float(run.card.get("parameters", math.nan) + run.card.get("parameters_added", math.nan))


SCORES: dict[str, Callable[[RunData], float]] = {
    "episodes": of_episodes,
    "evaluations": of_evaluations,
    "parameters": of_parameters,
}


def scores(cells: Cells, kind: str, problems: list[str]) -> dict[Cell, list[Score]]:
    """The final score of each run, of a kind in `SCORES`; `problems` names the runs that have none."""
    found: dict[Cell, list[Score]] = {}
    for cell, runs in cells.items():
        for run in runs:
            value = SCORES[kind](run)
            if math.isnan(value):
                problems.append(f"{run.path} has no {kind} yet, which it is scored by; left out of the table")
            else:
                found.setdefault(cell, []).append(Score(run.seed, value, run.steps, run.finished))
    return found


def methods_of(cells: Cells, grid: Grid, task: str) -> list[Method]:
    """The methods that were run on a task, in the order of the table and by its names."""
    return [
        Method(task, method, runs[0].config, runs)
        for method in grid.columns
        if (runs := cells.get((task, method)))
    ]


def link(path: Path, out: Path) -> str:
    """Where a run lies, as seen from the directory of a report."""
    return Path(os.path.relpath(path.resolve(), out.resolve())).as_posix()
