"""`critex table NAME`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from critex.cli import problems_to_stderr
from critex.cli.options import parse
from critex.errors import UserError

SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".txt": "terminal", "": "terminal"}


@dataclass
class Options:
    """Print a table: our runs beside the paper's numbers, with the difference."""

    name: str
    """Name of a suite, or `parameters` for Table 2 of the paper."""
    runs: Path | None = None
    """Directory of the suite's runs; without it, only the paper's numbers are shown."""
    format: Literal["terminal", "markdown", "latex", "csv"] | None = None
    """Format of the table; by default that of the extension of --out (.md, .tex, .csv, .txt), or terminal."""
    out: Path | None = None
    """File to write instead of printing."""
    curves: Path | None = None
    """Also write the learning curves of all tasks to this .png or .svg file, and their numbers to a .csv beside it."""


def main(args: list[str]) -> None:
    """Print or write the table."""
    options = parse(Options, "critex table", args)
    from critex.report.panels import require_picture, write_curves
    from critex.run.files import disk_errors
    from critex.tables import FORMATS, fill, table_named
    from critex.tables.formats import print_grid

    if options.curves:
        require_picture(options.curves)
        if options.out == options.curves.with_suffix(".csv"):
            raise UserError(f"--curves writes its numbers to {options.out}; give --out another name")
    suffix = options.out.suffix if options.out else ""
    if not options.format and suffix not in SUFFIXES:
        raise UserError(
            f"a table is written as .md, .tex, .csv or .txt, not as {options.out}; or add --format"
        )
    table, problems = table_named(options.name), list[str]()
    grid, cells = fill(table, options.runs, problems)
    problems_to_stderr(problems)
    if options.curves:
        write_curves(table, grid, cells, options.curves)
    out, format_ = options.out, options.format or SUFFIXES[suffix]
    if out:
        with disk_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(FORMATS[format_](grid), encoding="utf-8")
    elif format_ == "terminal":
        print_grid(grid)
    else:
        print(FORMATS[format_](grid), end="")
