"""Learning curves in the paper's layout: one small panel per task and algorithm, one line per method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from critex.errors import UserError
from critex.report.figures import CurveFigure, curve_figures, curve_rows, new_figure, plot_curves, write_csv
from critex.results.cells import Cells
from critex.results.methods import MethodRuns
from critex.run.files import disk_errors
from critex.tables.catalogue import NamedTable
from critex.tables.grid import Grid

COLUMNS = 3


@dataclass(frozen=True)
class Panel:
    """A baseline and the methods compared with it on one task."""

    task: str
    base: str
    methods: tuple[MethodRuns, ...]
    """All of them, run or not, so that a method has the same colour in every panel."""
    figure: CurveFigure


def bases(grid: Grid) -> list[str]:
    """The methods that have no baseline themselves."""
    return [method for method in grid.methods if method not in grid.baseline_of]


def panels(grid: Grid, cells: Cells, key: str) -> list[Panel]:
    """The panels of one metric, such as `return`, ordered by task; panels without runs are left out."""
    found = []
    for task in grid.tasks:
        for base in bases(grid):
            family = [method for method in grid.methods if grid.baseline_of.get(method, method) == base]
            methods = tuple(MethodRuns(task, method, {}, cells.get((task, method), ())) for method in family)
            for figure in curve_figures(methods):
                if figure.key == key:
                    found.append(Panel(task, base, methods, figure))
    return found


def panel_rows(shown: Sequence[Panel]) -> Iterable[list[str]]:
    """task, method, step, mean, std, n, and one column per seed, for all panels."""
    seeds = sorted({seed for panel in shown for method in panel.methods for seed in method.seeds})
    for i, panel in enumerate(shown):
        header, *rows = curve_rows(panel.figure, panel.methods, seeds)
        yield from ([["task", *header]] if i == 0 else [])
        yield from ([panel.task, *row] for row in rows)


def require_picture(out: Path) -> None:
    """Refuse a file for curves that is no picture."""
    if out.suffix not in (".png", ".svg"):
        raise UserError(f"curves are written as .png or .svg, not as {out}")


def write_curves(table: NamedTable, grid: Grid, cells: Cells, out: Path) -> None:
    """Write the learning curves of a table as PNG or SVG, and their numbers as CSV beside it."""
    if table.curve is None:
        raise UserError(f"the table {table.name} counts parameters and has no curves")
    shown = panels(grid, cells, table.curve)
    if not shown:
        raise UserError("there are no runs to draw curves of yet; give the runs of a suite with --runs DIR")
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        draw_panels(shown, out)
        write_csv(out.with_suffix(".csv"), panel_rows(shown))


def draw_panels(shown: Sequence[Panel], *paths: Path) -> None:
    """Lines are means, bands ± one standard deviation over seeds; one row per task if there are several baselines."""
    families = list(dict.fromkeys(panel.base for panel in shown))
    tasks = list(dict.fromkeys(panel.task for panel in shown))
    columns = len(families) if len(families) > 1 else min(COLUMNS, len(shown))
    rows = len(tasks) if len(families) > 1 else -(-len(shown) // columns)
    canvas = new_figure(3.4 * columns, 2.6 * rows)
    grid = canvas.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for i, panel in enumerate(shown):
        place = (
            (tasks.index(panel.task), families.index(panel.base)) if len(families) > 1 else divmod(i, columns)
        )
        axes = grid[place]
        axes.set_axis_on()
        plot_curves(axes, panel.figure, panel.methods)
        axes.set_title(panel.task, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.ticklabel_format(axis="x", scilimits=(-3, 4))
        axes.xaxis.get_offset_text().set_fontsize(7)
        axes.legend(frameon=False, fontsize=7)
    canvas.supxlabel("environment steps", fontsize=9)
    canvas.supylabel(shown[0].figure.ylabel, fontsize=9)
    for path in paths:
        canvas.savefig(path, dpi=150)
