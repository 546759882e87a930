"""Where suites meet reports: the tables of the paper and of our suites, and what our runs put into them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from critex.errors import UserError, unknown
from critex.report import ReportResult, write_suite_report
from critex.report.cells import Cells, load_cells, scores
from critex.report.panels import draw_panels, panel_rows, panels
from critex.report.sheets import FORMATS, terminal
from critex.report.tables import Cell, Grid
from critex.run.files import disk_errors
from critex.suite.manifest import MANIFEST, Manifest, read_manifest
from critex.suite.paper_tables import PaperTable, paper_parameters, paper_table
from critex.suite.suite import Suite
from critex.suite.suites import SUITES

SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv"}
CURVES = {"episodes": "return", "evaluations": "evaluation"}
OURS = {
    "episodes": "the mean return of the last 100 training episodes",
    "evaluations": "the mean return of the last tenth of the evaluations, or of the last if a run ends at its goal",
    "parameters": "the parameters of agent and explorer",
}
PARAMETERS = "parameters"
ELEVEN_ACTIONS = "MiniHack-Freeze-Horn-Restricted-v0"  # Table 2 counts the networks for 11 actions


@dataclass(frozen=True)
class Table:
    """A table by name: what there is to fill in, and how."""

    name: str
    grid: Grid
    score: str
    """The kind of final score, one of `report.cells.SCORES`."""
    suite: str
    """The suite whose runs fill it."""


def table_named(name: str) -> Table:
    """The table of a suite, or one of the paper's that no suite fills yet: minihack, habitat, parameters."""
    if name in SUITES:
        suite = SUITES[name]
        return Table(name, _suite_grid(suite), suite.score, name)
    if name == PARAMETERS:
        return Table(name, _parameter_grid(), "parameters", "minihack")
    if name in ("minihack", "habitat"):
        return Table(name, _paper_grid(name), "episodes", name)
    raise unknown("table", name, [*SUITES, "minihack", "habitat", PARAMETERS])


def _suite_grid(suite: Suite) -> Grid:
    cells = tuple((task.name, method.name) for task, method in suite.cells())
    title = f"{suite.name}: {suite.title}"
    paper = paper_table(suite.paper) if suite.paper else None
    return _grid(title, cells, suite.score, paper)


def _paper_grid(name: str) -> Grid:
    paper = paper_table(name)
    return _grid(f"{name}: Table {paper.table}", tuple(paper.scores), "episodes", paper)


def _parameter_grid() -> Grid:
    """Table 2: parameters of the agent with each explorer; what it adds, in percent, takes the place of the RPI."""
    paper = paper_parameters()
    printed: dict[Cell, tuple[float, float]] = {(ELEVEN_ACTIONS, "impala"): (paper.base, math.nan)}
    for explorer, added in paper.added.items():
        printed[ELEVEN_ACTIONS, f"impala+{explorer}"] = (paper.base + sum(added), math.nan)
    grid = _grid("parameters: Table 2", tuple(printed), "parameters", None)
    return replace(grid, paper=printed, gain="added %", chance=False)


def _grid(title: str, cells: tuple[Cell, ...], score: str, paper: PaperTable | None) -> Grid:
    methods = dict.fromkeys(method for _, method in cells)
    notes = [f"Ours: mean ± sample standard deviation over n seeds of {OURS[score]}."]
    if paper:
        notes.append(f"Paper: Table {paper.table}, {paper.title}.")
    return Grid(
        title,
        cells,
        baseline_of={method: base for method in methods if (base := _base(method, methods))},
        paper={cell: paper.scores[cell] for cell in cells if cell in paper.scores} if paper else {},
        paper_seeds=len(paper.seeds) if paper else 0,
        notes=tuple(notes),
    )


def _base(method: str, methods: dict[str, None]) -> str | None:
    """The algorithm alone, or with E3B where the table has it only so, as the paper's last two."""
    algorithm = method.partition("+")[0]
    base = algorithm if algorithm in methods else f"{algorithm}+e3b"
    return base if base in methods and base != method else None


def filled(table: Table, runs: Path | None, problems: list[str]) -> tuple[Grid, Cells]:
    """The table with the runs of a directory, and these runs; as it is where there is no such directory yet.

    A `UserError` says why where the directory is of another suite or version, or of none.
    """
    if runs is None or not runs.exists() or (runs.is_dir() and not any(runs.iterdir())):
        hint = (f"Run it with: critex suite run {table.suite}",) if table.suite in SUITES else ()
        return replace(table.grid, notes=table.grid.notes + hint), {}
    manifest = _manifest(runs, table)
    cells = load_cells(runs, table.grid.cells, problems)
    return replace(table.grid, ours=scores(cells, table.score, problems), budget=manifest.budget), cells


def _manifest(runs: Path, table: Table) -> Manifest:
    manifest = read_manifest(runs)
    if manifest.suite != table.suite:
        raise UserError(
            f"{runs} holds runs of the suite {manifest.suite}; the table {table.name} is of {table.suite}"
        )
    return manifest


def write_curves(table: Table, grid: Grid, cells: Cells, out: Path) -> None:
    """The learning curves as PNG or SVG, and their numbers as CSV beside them."""
    from critex.report.figures import write_csv

    if out.suffix not in (".png", ".svg"):
        raise UserError(f"curves are written as .png or .svg, not as {out.name}")
    if table.score not in CURVES:
        raise UserError(f"the table {table.name} counts parameters and has no curves")
    shown = panels(grid, cells, CURVES[table.score])
    if not shown:
        raise UserError("there is no run to draw curves of yet; give those of a suite with --runs DIR")
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        draw_panels(shown, out)
        write_csv(out.with_suffix(".csv"), panel_rows(shown))


def command(args: list[str], prog: str, parse: Callable[..., Any]) -> None:
    """`critex table NAME`; `parse` is that of the command line."""

    def options(
        name: str,
        /,
        runs: Path | None = None,
        format: Literal["terminal", "markdown", "latex", "csv"] | None = None,
        out: Path | None = None,
        curves: Path | None = None,
    ) -> tuple[str, Path | None, str | None, Path | None, Path | None]:
        """Print a table: our runs beside the numbers of the paper, with the difference.

        Args:
            name: a suite, or one of the paper's tables minihack, habitat, parameters
            runs: directory of the suite's runs (none: the paper's numbers alone)
            format: how to write it (none: as the ending of --out says, .md, .tex or .csv, else for a terminal)
            out: file to write it to (none: print it)
            curves: also draw the learning curves of all tasks into this .png or .svg, their numbers as .csv beside it
        """
        return name, runs, format, out, curves

    name, runs, format_, out, curves = parse(options, prog, args)
    table, problems = table_named(name), list[str]()
    grid, cells = filled(table, runs, problems)
    for problem in problems:
        print(problem, file=sys.stderr)
    if curves:
        write_curves(table, grid, cells, curves)
    format_ = format_ or SUFFIXES.get(out.suffix if out else "", "terminal")
    if out:
        with disk_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(FORMATS[format_](grid), encoding="utf-8")
    elif format_ == "terminal":
        show(grid)
    else:
        print(FORMATS[format_](grid), end="")


def show(grid: Grid) -> None:
    """Print the table on the terminal."""
    from rich.console import Console

    console = Console()
    console.print(terminal(grid)) if console.is_terminal else print(FORMATS["terminal"](grid), end="")


def is_suite(directory: Path) -> bool:
    """Whether a directory says that it holds the runs of a suite."""
    return (directory / MANIFEST).exists()


def report_suite(directory: Path, out: Path) -> tuple[ReportResult, Grid]:
    """The report page of a suite's directory; and its table."""
    table = table_named(read_manifest(directory).suite)
    problems: list[str] = []
    grid, cells = filled(table, directory, problems)
    return write_suite_report(grid, cells, CURVES[table.score], problems, out), grid
