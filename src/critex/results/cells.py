"""The runs of a suite, read from `DIR/<task>/<method>/seed-<n>` and grouped by cell (task, method)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from critex.errors import UserError
from critex.results.methods import differing, keep, method_name, method_options
from critex.results.runs import RunData, load_run, series_name
from critex.results.stats import final_evaluations, final_score

Cell = tuple[str, str]
"""(task, method): one entry of a table."""

Cells = dict[Cell, tuple[RunData, ...]]
"""The runs of each cell, ordered by seed."""


@dataclass(frozen=True)
class Score:
    """The final score of one run."""

    seed: int
    value: float
    steps: int
    """Environment steps taken."""
    finished: bool = True


def load_cells(directory: Path, cells: Iterable[Cell], problems: list[str]) -> Cells:
    """Load the usable runs of these cells; append one line to `problems` for each run that cannot be used.

    Cells without runs are left out.
    """
    found: Cells = {}
    for task, method in cells:
        runs: dict[int, RunData] = {}
        for path in sorted(filter(Path.is_dir, (directory / task / method).glob("seed-*"))):
            try:
                run = load_run(path, problems)
                if run.env.partition("?")[0] != task:
                    raise UserError(f"{path} is a run of {run.env}, not of {task}")
                if not f"{method}-".startswith(f"{method_name(run)}-"):  # a variant's name is longer
                    raise UserError(f"{path} is a run of {method_name(run)}, not of {method}")
                keep(run, runs, problems)
            except UserError as error:
                problems.append(f"{error}; left out")
        if runs:
            found[task, method] = tuple(runs[seed] for seed in sorted(runs))
            configs = [method_options(run) for run in runs.values()]
            mixed = [name for name in differing(configs) if all(name in config for config in configs)]
            if mixed:
                problems.append(
                    f"{directory / task / method} mixes runs that differ in {', '.join(mixed)}: their mean says little"
                )
    return found


def last_episodes(run: RunData, measure: str = "return") -> float:
    """Mean extrinsic return, or another measure, of the last 100 training episodes."""
    return final_score(run.values(series_name(measure)))


def last_evaluations(run: RunData, measure: str = "return") -> float:
    """Mean of the last tenth of the evaluations; only the last one if the run stops when it reaches its goal."""
    values = run.values(series_name(measure, evaluation=True))
    return final_evaluations(values[-1:] if run.stops else values)


def parameter_count(run: RunData, measure: str = "") -> float:
    """Parameters of agent and explorer."""
    counts = (run.card.get(key) for key in ("parameters", "parameters_added"))
    return sum(float(n) if isinstance(n, int | float) else math.nan for n in counts)


SCORES: Mapping[str, Callable[[RunData, str], float]] = {
    "episodes": last_episodes,
    "evaluations": last_evaluations,
    "parameters": parameter_count,
}


def scores(cells: Cells, kind: str, problems: list[str], measure: str = "return") -> dict[Cell, list[Score]]:
    """The final score of each run, of a kind in `SCORES`; runs without a score yet are added to `problems`."""
    found: dict[Cell, list[Score]] = {}
    for cell, runs in cells.items():
        for run in runs:
            value = SCORES[kind](run, measure)
            if math.isnan(value):
                none = f"no {kind} that give a number" if run.finished else f"no {kind} yet"
                problems.append(f"{run.path} has {none} and cannot be scored; left out of the table")
            else:
                found.setdefault(cell, []).append(Score(run.seed, value, run.steps, run.finished))
    return found
