"""Render a `Grid` for the terminal, or as Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from critex.results.formatting import as_printed, estimate, number, signed, spread
from critex.tables.grid import Comparison, Grid, Row

if TYPE_CHECKING:
    from rich.console import RenderableType

UNFINISHED = "†"
NAMED = 6
"""At most this many unfinished runs are named below a table."""

Groups = Sequence[Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Sheet:
    """A table as text."""

    title: str
    header: Sequence[str]
    groups: Groups
    """Groups of rows, separated by a rule."""
    labels: int = 2
    """How many columns on the left hold text; the others hold numbers."""


def sheets(grid: Grid) -> list[Sheet]:
    """The table of cells and, if there are baselines, the comparison over all tasks."""
    return [cell_sheet(grid), *([task_sheet(grid)] if grid.comparisons else [])]


def cell_sheet(grid: Grid) -> Sheet:
    """One row per cell that has a number: ours, the paper's, the difference, and both relative to their baselines."""

    def ours(line: Row) -> str:
        return spread(line.ours) + UNFINISHED * bool(line.unfinished) if line.ours.n else ""

    columns: list[tuple[str, Callable[[Row], str]]] = [("method", lambda line: line.method), ("ours", ours)]
    if grid.paper:
        columns += [
            ("paper", lambda line: as_printed(line.paper, grid.paper_seeds)),
            ("difference", lambda line: signed(line.difference)),
        ]
    if grid.baseline_of:
        columns.append((grid.gain, lambda line: signed(line.rpi)))
    if grid.baseline_of and grid.paper:
        columns.append((f"paper's {grid.gain}", lambda line: signed(line.paper_rpi)))
    groups = [
        [[task * (i == 0), *(value(line) for _, value in columns)] for i, line in enumerate(lines)]
        for task, lines in groupby(shown_rows(grid), key=lambda line: line.task)
    ]
    return Sheet(grid.title, ["task", *(name for name, _ in columns)], groups)


def shown_rows(grid: Grid) -> list[Row]:
    """Every cell before the first run; then those with a number, ours or the paper's."""
    begun = any(row.ours.n for row in grid.rows)
    return [row for row in grid.rows if row.ours.n or row.paper or not begun]


def task_sheet(grid: Grid) -> Sheet:
    """One row per method with a baseline: mean and interquartile mean of its RPI, and P(improvement)."""
    columns: list[tuple[str, Callable[[Comparison], str]]] = [
        ("method", lambda c: c.method),
        ("over", lambda c: c.base),
        ("tasks", lambda c: f"{c.tasks} of {c.of}"),
        ("seeds in all", lambda c: str(c.pairs)),
        (f"mean {grid.gain}", lambda c: estimate(c.rpi)),
        (f"interquartile mean {grid.gain}", lambda c: estimate(c.iqm)),
        ("P(improvement)", lambda c: estimate(c.probability)),
    ]
    if grid.paper:
        columns.insert(5, ("paper's, same tasks", lambda c: signed(c.paper_rpi)))
    rows = [[value(comparison) for _, value in columns] for comparison in grid.comparisons]
    title = "Over all tasks, paired by seed, with 95 % intervals"
    return Sheet(title, [name for name, _ in columns], [rows])


def notes(grid: Grid) -> list[str]:
    """The notes below the table."""
    found = list(grid.notes)
    if grid.budget != 1:
        found.append(f"Budget {grid.budget:g}: our runs take {grid.budget:g} × the steps of the full suite.")
    running = [
        f"{task} {method} seed {score.seed} at step {score.steps:,}"
        for (task, method), scores in grid.ours.items()
        for score in scores
        if not score.finished
    ]
    if running:
        more = [f"and {len(running) - NAMED} more"] if len(running) > NAMED else []
        words = "; ".join([*running[:NAMED], *more])
        found.append(f"{UNFINISHED} Not finished, and counted up to the step reached: {words}.")
    for comparison in grid.comparisons:
        rows = [row for row in grid.rows if row.method == comparison.method and row.ours.n]
        if undefined := [
            row.task for row in rows if math.isnan(row.rpi) and grid.pairs(row.task, row.method)
        ]:
            tasks = ", ".join(undefined[:NAMED]) + (" and others" if len(undefined) > NAMED else "")
            found.append(
                f"{comparison.method} has no mean {grid.gain}: {comparison.base} is near 0 on {tasks}."
            )
    if not any(grid.ours.values()):
        found.append("No run of ours yet.")
    if hidden := len(grid.rows) - len(shown_rows(grid)):
        found.append(f"{hidden} of {len(grid.rows)} cells have no run yet and are not shown.")
    return found


# Formats --------------------------------------------------------------------------------------------------


def terminal(grid: Grid) -> RenderableType:
    """The tables as rich renderables."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for sheet in sheets(grid):
        table = Table(box=SIMPLE_HEAD)
        for i, name in enumerate(sheet.header):
            table.add_column(Text(name), justify="left" if i < sheet.labels else "right")
        for rows in sheet.groups:
            table.add_section()
            for row in rows:
                table.add_row(*(Text(cell) for cell in row))  # Text, so that [0.1, 0.2] is not read as markup
        parts += [Text(sheet.title, style="bold"), table]
    return Group(*parts, *(Text(note) for note in notes(grid)))


def print_grid(grid: Grid) -> None:
    """Print the tables, in colour and to its width if stdout is a terminal."""
    from rich.console import Console

    console = Console()
    console.print(terminal(grid)) if console.is_terminal else print(as_text(grid), end="")


def as_text(grid: Grid, width: int = 140) -> str:
    """The terminal tables without colours."""
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=width, no_color=True, force_terminal=False).print(terminal(grid))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def markdown(grid: Grid) -> str:
    """Pipe tables, each with a heading."""
    lines = []
    for sheet in sheets(grid):
        rule = ["---" if i < sheet.labels else "---:" for i in range(len(sheet.header))]
        rows = [sheet.header, rule, *(row for rows in sheet.groups for row in rows)]
        lines += [f"**{sheet.title}**", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join([*lines, *(f"{note}\n" for note in notes(grid))])


def latex(grid: Grid) -> str:
    """One `table` with booktabs rules for each; the notes follow the last one."""
    parts = ["% needs \\usepackage{booktabs}"]
    for sheet in sheets(grid):
        groups = ["\n".join(_latex_row(row) for row in rows) for rows in sheet.groups]
        body = "\n\\midrule\n".join([_latex_row(sheet.header), *groups])
        align = "l" * sheet.labels + "r" * (len(sheet.header) - sheet.labels)
        parts.append(
            f"\\begin{{table}}\n\\caption{{{_escaped(sheet.title)}}}\n\\begin{{tabular}}{{{align}}}\n\\toprule\n"
            f"{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}"
        )
    parts += [f"\\par {_escaped(note)}" for note in notes(grid)]
    return "\n".join(parts) + "\n"


def _latex_row(row: Iterable[str]) -> str:
    return " & ".join(map(_escaped, row)) + r" \\"


_LATEX = {
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    UNFINISHED: r"\textdagger{}",
    "…": r"\dots{}",
    "—": "---",
    "α": r"$\alpha$",
    "ε": r"$\varepsilon$",
}
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {c: "\\" + c for c in "&%$#_{}"}


def _escaped(text: str) -> str:
    minus = re.sub(r"(?<![\w-])-(?=\d)", "−", text)  # a hyphen before a number is a minus
    return "".join(_LATEX.get(c, c) for c in minus).replace("--", "-{}-")


def as_csv(grid: Grid) -> str:
    """The cells as plain numbers, unrounded."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(number_rows(grid))
    return file.getvalue()


def number_rows(grid: Grid) -> Iterable[Sequence[object]]:
    """A header and one row per cell; unknown values are empty."""
    yield [
        *("task", "method", "base", "mean", "std", "low", "high", "n", "unfinished", "seeds", "budget"),
        *("paper mean", "paper std", "paper n", "difference", "rpi", "paper rpi"),
    ]
    for line in grid.rows:
        seeds = [score.seed for score in grid.scores(line.task, line.method)]
        ours = [number(v) for v in (line.ours.mean, line.ours.std, line.ours.low, line.ours.high)]
        paper = [number(v) for v in line.paper or (math.nan, math.nan)]
        yield [
            *(line.task, line.method, grid.baseline_of.get(line.method, ""), *ours),
            *(line.ours.n, line.unfinished, " ".join(map(str, seeds)), f"{grid.budget:g}"),
            *(*paper, grid.paper_seeds if line.paper else ""),
            *(number(v) for v in (line.difference, line.rpi, line.paper_rpi)),
        ]


FORMATS: dict[str, Callable[[Grid], str]] = {
    "terminal": as_text,
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
}
