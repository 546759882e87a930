"""Learning curves in the paper's layout: a small panel for each task and algorithm, its methods as lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from critex.report.cells import Cells
from critex.report.figures import CurveFigure, curve_figures, curve_rows, new_figure, plot_curves
from critex.report.methods import Method
from critex.report.tables import Grid

COLUMNS = 3


@dataclass(frozen=True)
class Panel:
    """A baseline and the methods compared with it, on one task."""

    task: str
    base: str
    methods: tuple[Method, ...]
    """All of them, also those not run, so that each has the same colour in every panel."""
    figure: CurveFigure


def bases(grid: Grid) -> list[str]:
    """The methods that others are compared with, and those that are compared with none."""
    return [method for method in grid.columns if method not in grid.baseline_of]


def panels(grid: Grid, cells: Cells, key: str) -> list[Panel]:
    """The panels of one metric, such as `return`, task by task; without those of which nothing was run."""
    found = []
    for task in grid.rows:
        for base in bases(grid):
            family = [method for method in grid.columns if grid.baseline_of.get(method, method) == base]
            methods = tuple(Method(task, method, {}, cells.get((task, method), ())) for method in family)
            for figure in curve_figures(methods):
                if figure.key == key:
                    found.append(Panel(task, base, methods, figure))
    return found


def panel_rows(shown: Sequence[Panel]) -> Iterable[list[str]]:
    """task, method, step, mean, std, n, and a column for each seed, of all panels."""
    seeds = sorted({seed for panel in shown for method in panel.methods for seed in method.seeds})
    for i, panel in enumerate(shown):
        header, *rows = curve_rows(panel.figure, panel.methods, seeds)
        yield from ([["task", *header]] if i == 0 else [])
        yield from ([panel.task, *row] for row in rows)


def draw_panels(shown: Sequence[Panel], *paths: Path) -> None:
    """Means as lines, ± one standard deviation over seeds as bands; a row for each task if there are several bases."""
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
