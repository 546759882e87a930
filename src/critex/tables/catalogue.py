"""Tables by name, of our suites and of the paper, and how to fill them from a directory of runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from statistics import mean

from critex.errors import UserError, unknown
from critex.results.cells import Cell, Cells, load_cells, scores
from critex.results.formatting import as_printed
from critex.results.runs import series_name
from critex.suite.manifest import read_manifest
from critex.suite.suite import Suite
from critex.suite.suites import SUITES
from critex.tables.grid import Grid
from critex.tables.paper import PaperTable, paper_parameters, paper_table

SCORE_NOTES = {
    "episodes": "the mean {measure} of the last 100 training episodes",
    "evaluations": "the mean {measure} of the last tenth of the evaluations, or of the last one if runs stop at their goal",
    "parameters": "the parameters of agent and explorer",
}
PARAMETERS = "parameters"
ELEVEN_ACTIONS = "MiniHack-Freeze-Horn-Restricted-v0"  # Table 2 counts the networks for 11 actions


@dataclass(frozen=True)
class NamedTable:
    """An empty table and the runs that fill it."""

    name: str
    grid: Grid
    score: str
    """The kind of final score, one of `results.cells.SCORES`."""
    suite: str
    """The suite whose runs fill it."""
    measure: str = "return"
    hours: Mapping[str, float] = field(default_factory=dict)
    """Wall clock of one run of each method, as the paper gives it."""

    @property
    def curve(self) -> str | None:
        """The metric whose learning curves belong to the table; None for a table of parameters."""
        return None if self.score == PARAMETERS else series_name(self.measure, self.score == "evaluations")


def table_names() -> list[str]:
    """Every name that `table_named` knows."""
    return [*SUITES, PARAMETERS]


def table_named(name: str) -> NamedTable:
    """The table of a suite, or `parameters`, Table 2 of the paper."""
    if name in SUITES:
        suite = SUITES[name]
        hours = paper_table(suite.paper).hours if suite.paper else {}
        return NamedTable(name, _suite_grid(suite), suite.score, name, suite.measure, hours)
    if name == PARAMETERS:
        return NamedTable(name, _parameter_grid(), "parameters", "minihack")
    raise unknown("table", name, table_names())


def fill(table: NamedTable, runs: Path | None, problems: list[str]) -> tuple[Grid, Cells]:
    """Fill the table with the runs of a suite's directory; without one it holds only the paper's numbers.

    A `UserError` if the directory does not exist or belongs to another suite or version.
    """
    if runs is not None and not runs.exists():
        raise UserError(
            f"{runs} does not exist; run it with: critex suite run {table.suite} --out {quote(str(runs))}"
        )
    if runs is None or (runs.is_dir() and not any(runs.iterdir())):
        notes = (*table.grid.notes, *_wall_clock(table, {}), f"Run it with: critex suite run {table.suite}")
        return replace(table.grid, notes=notes), {}
    manifest = read_manifest(runs)
    if manifest.suite != table.suite:
        raise UserError(
            f"{runs} holds runs of the suite {manifest.suite}; the table {table.name} needs runs of {table.suite}"
        )
    cells = load_cells(runs, table.grid.cells, problems)
    ours = scores(cells, table.score, problems, table.measure)
    notes = (*table.grid.notes, *_wall_clock(table, cells))
    return replace(table.grid, ours=ours, budget=manifest.budget, notes=notes), cells


def _wall_clock(table: NamedTable, cells: Cells) -> list[str]:
    """Hours of a run, the paper's and the mean of our finished runs, as one line; nothing if the paper gives none."""
    if not table.hours:
        return []
    ours: dict[str, list[float]] = {}
    for (_, method), runs in cells.items():
        ours.setdefault(method, []).extend(r.card["seconds"] / 3600 for r in runs if "seconds" in r.card)
    parts = [f"paper: {', '.join(f'{method} {hours:g} h' for method, hours in table.hours.items())}"]
    shown = [f"{method} {mean(hours):.2g} h (n={len(hours)})" for method, hours in ours.items() if hours]
    if shown:
        parts.append(f"ours: {', '.join(shown)}")
    return [f"Wall clock of a run, {'; '.join(parts)}."]


def _suite_grid(suite: Suite) -> Grid:
    cells = tuple((task.name, method.name) for task, method in suite.cells())
    paper = paper_table(suite.paper) if suite.paper else None
    grid = _grid(f"{suite.name}: {suite.title}", cells, suite.score, paper, suite.measure)
    return replace(grid, notes=(*grid.notes, _quotation(suite.beside))) if suite.beside else grid


def _quotation(name: str) -> str:
    """A table of the paper as one line."""
    paper = paper_table(name)
    scores = ", ".join(
        f"{method} {as_printed(score, len(paper.seeds))}" for (_, method), score in paper.scores.items()
    )
    return f"For comparison, Table {paper.table} of the paper ({paper.title}): {scores}."


def _parameter_grid() -> Grid:
    """Table 2: parameters of the agent with each explorer; the percentage added takes the place of the RPI."""
    paper = paper_parameters()
    printed: dict[Cell, tuple[float, float]] = {(ELEVEN_ACTIONS, "impala"): (paper.base, math.nan)}
    for explorer, added in paper.added.items():
        printed[ELEVEN_ACTIONS, f"impala+{explorer}"] = (paper.base + sum(added), math.nan)
    grid = _grid("parameters: Table 2", tuple(printed), "parameters", None)
    return replace(grid, paper=printed, gain="added %", chance=False)


def _grid(
    title: str, cells: tuple[Cell, ...], score: str, paper: PaperTable | None, measure: str = "return"
) -> Grid:
    methods = dict.fromkeys(method for _, method in cells)
    notes = [
        f"Ours: mean ± sample standard deviation over n seeds of {SCORE_NOTES[score].format(measure=measure)}."
    ]
    if paper:
        notes.append(f"Paper: Table {paper.table}, {paper.title}.")
    return Grid(
        title,
        cells,
        baseline_of={method: base for method in methods if (base := _baseline(method, methods))},
        paper={cell: paper.scores[cell] for cell in cells if cell in paper.scores} if paper else {},
        paper_seeds=len(paper.seeds) if paper else 0,
        notes=tuple(notes),
    )


def _baseline(method: str, methods: Collection[str]) -> str | None:
    """The algorithm alone, or with E3B if that is the table's only baseline, as in Tables 5 and 6.

    A reference, which does not learn, is compared with the first algorithm.
    """
    algorithm, _, variant = method.partition("+")[0].partition("-")
    if algorithm == "reference" and variant:
        algorithm = next((m for m in methods if not m.startswith("reference-")), algorithm)
    base = algorithm if algorithm in methods else f"{algorithm}+e3b"
    return base if base in methods and base != method else None
