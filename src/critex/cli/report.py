"""`critex report RUN …`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from critex.cli import problems_to_stderr
from critex.cli.options import parse
from critex.errors import UserError


@dataclass
class Options:
    """Write one self-contained page with learning curves, final scores, costs and options of these runs. Runs that
    differ only in their seed are one method."""

    runs: tuple[Path, ...]
    """Directories of runs, or one directory of a suite."""
    out: Path = Path("report")
    """Directory of the report; its index.html is the page."""


def main(args: list[str]) -> None:
    """Write the report, and print its scores and its path."""
    options = parse(Options, "critex report", args)
    from critex.suite.manifest import MANIFEST

    suites = [path for path in options.runs if (path / MANIFEST).exists()]
    if not suites:
        report_runs(options.runs, options.out)
    elif len(options.runs) > 1:
        raise UserError("a suite has its own report; give only its directory")
    else:
        from critex.explain.scene import trajectory_of
        from critex.report import report_suite
        from critex.tables.formats import print_grid

        result, grid = report_suite(suites[0], options.out, trajectory_of)
        problems_to_stderr(result.problems)
        print_grid(grid)
        print(f"report: {result.index}")


def report_runs(runs: Sequence[Path], out: Path, about: str = "") -> None:
    """Write the report of these runs, with a paragraph `about` them if there is one."""
    from rich.console import Console

    from critex.explain.scene import trajectory_of
    from critex.report import write_report
    from critex.tables.scores import score_table

    result = write_report(runs, out, about, trajectory_of)
    problems_to_stderr(result.problems)
    Console().print(score_table(result.scores))
    print(f"report: {result.index}")
