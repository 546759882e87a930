"""The figures of a report: their data, and each as CSV and PNG."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from critex.errors import UserError
from critex.results.formatting import number
from critex.results.methods import MethodRuns
from critex.results.runs import series_name
from critex.results.stats import Curve, Floats, aggregate, common_grid
from critex.results.visits import VisitHistory, frame_steps, mean_visits

# The palette of Okabe and Ito, safe for colour-blind readers, darkened or lightened where it would be faint on white
# or on black. Dashes distinguish the lines without any colour.
LIGHT = ("#0072b2", "#c65000", "#00845f", "#b0558a", "#9a6b00", "#2b83b8", "#444444", "#8c8400")
DARK = ("#56b4e9", "#f28e4b", "#34c99f", "#e59ac4", "#f0b429", "#a5d8ff", "#d0d0d0", "#e8e06a")
DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3), (12, 4), (4, 2, 1, 2, 1, 2), (1, 3), (10, 2))

STAGES = 4
CARRIED = "A run that stopped at its goal keeps its last evaluation to the end."


@dataclass(frozen=True)
class CurveFigure:
    """Curves of several methods on one grid."""

    key: str
    title: str
    ylabel: str
    caption: str
    grid: Floats  # [G]
    curves: dict[int, Curve]
    """Index of the method on the page, which also selects its colour → curve."""
    log: bool


@dataclass(frozen=True)
class VisitFigure:
    """Mean visit counts of several methods at the same steps."""

    steps: Floats  # [F]
    visits: dict[int, VisitHistory]


ABOUT = {
    "return": (
        "Learning curves",
        "return",
        "Extrinsic return of the training episodes, before any bonus.",
    ),
    "evaluation": (
        "Evaluation",
        "return",
        "Extrinsic return of evaluation episodes: separate environments, greedy, no bonus.",
    ),
    "bonus": ("Bonus over time", "scaled bonus", "Mean scaled bonus β of the steps between two log entries."),
    "bonus_raw": (
        "Raw bonus over time",
        "raw bonus",
        "The bonus before it is divided by its running standard deviation.",
    ),
    "effective_dimension": (
        "Effective dimension of φ",
        "dimensions",
        "tr(A⁻¹Σφφᵀ): how many directions of φ the memory has filled. If it stays near 1 while the agent sees new "
        "states, φ hardly varies and the bonus cannot tell them apart.",
    ),
    "phi_rank": (
        "Directions in which φ varies",
        "directions",
        "Effective rank of the covariance of φ over the latest steps: exp of the entropy of its normalised eigenvalues. If "
        "it falls towards 1, the features collapse.",
    ),
    "phi_norm": (
        "Norm of φ relative to λ",
        "‖φ‖²/λ",
        "Far below 1, the memory hardly fills; far above it, the first visit takes nearly all of the bonus.",
    ),
    "bonus_early": (
        "Bonus of the first ten steps",
        "share of an episode",
        "The share of the raw bonus paid in the first ten steps of episodes with at least forty. Near 1, later "
        "discoveries earn little.",
    ),
    "bonus_action": (
        "Bonus of the action",
        "share",
        "The share of the bonus that falls on the action's coordinates, if φ is [φ(s); a].",
    ),
}


def curve_figures(methods: Sequence[MethodRuns]) -> list[CurveFigure]:
    """One figure per metric that at least one run has; all methods share its grid."""
    figures = []
    for key, (title, ylabel, caption) in (ABOUT | _measures(methods)).items():
        drawn = {i: [run for run in method.runs if run.values(key).size] for i, method in enumerate(methods)}
        drawn = {i: runs for i, runs in drawn.items() if runs}
        series = {i: [run.series[key] for run in runs] for i, runs in drawn.items()}
        grid = common_grid([steps for each in series.values() for steps, _ in each])
        if grid.size:
            # Without this, a method would get worse whenever one of its seeds is done.
            evaluation = key.startswith("evaluation")
            carry = {i: [evaluation and run.stopped for run in runs] for i, runs in drawn.items()}
            curves = {i: aggregate(each, grid, carry[i]) for i, each in series.items()}
            if any(map(any, carry.values())):
                caption = f"{caption} {CARRIED}"
            # Returns may be negative, so they stay linear.
            log = key in ("bonus", "bonus_raw", "phi_norm") and _decades(curves) > 2
            figures.append(CurveFigure(key, title, ylabel, caption, grid, curves, log))
    return figures


def _measures(methods: Sequence[MethodRuns]) -> dict[str, tuple[str, str, str]]:
    """The descriptions in `ABOUT` for the environment's own measures."""
    found = {}
    for name in dict.fromkeys(m for method in methods for run in method.runs for m in run.measures):
        training, evaluation = series_name(name), series_name(name, evaluation=True)
        found[training] = (f"{name.capitalize()} in training", name, f"The {name} of the training episodes.")
        found[evaluation] = (
            f"{name.capitalize()} in evaluations",
            name,
            f"Mean {name} of evaluation episodes: separate environments, no bonus.",
        )
    return found


def _decades(curves: dict[int, Curve]) -> float:
    """How many powers of ten the means span; 0 if some are not positive, which rules out a log scale."""
    means = np.concatenate([curve.mean[np.isfinite(curve.mean)] for curve in curves.values()])
    return float(np.log10(means.max() / means.min())) if means.size and means.min() > 0 else 0.0


def visit_figure(methods: Sequence[MethodRuns]) -> VisitFigure | None:
    """The visits of all methods at common steps; None if no run recorded any.

    A run records the grid only as far as it got, so all are drawn on the largest one.
    """
    recorded = {i: [run.visits for run in method.runs if run.visits] for i, method in enumerate(methods)}
    recorded = {i: each for i, each in recorded.items() if each}
    if not recorded:
        return None
    everything = [visits for each in recorded.values() for visits in each]
    rows, columns = (max(visits.counts.shape[axis] for visits in everything) for axis in (1, 2))
    padded = {i: [_on_grid(visits, rows, columns) for visits in each] for i, each in recorded.items()}
    steps = frame_steps(everything)
    return VisitFigure(steps, {i: mean_visits(each, steps) for i, each in padded.items()})


def _on_grid(visits: VisitHistory, rows: int, columns: int) -> VisitHistory:
    _, height, width = visits.counts.shape
    return replace(visits, counts=np.pad(visits.counts, ((0, 0), (0, rows - height), (0, columns - width))))


def stages(figure: VisitFigure) -> list[int]:
    """The frames shown in a still picture: evenly spread, including the last."""
    last = len(figure.steps) - 1
    return sorted({round(last * (k + 1) / STAGES) for k in range(STAGES)})


# CSV ------------------------------------------------------------------------------------------------------


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write the rows of a table; the first is its header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def curve_rows(
    figure: CurveFigure, methods: Sequence[MethodRuns], seeds: Sequence[int] | None = None
) -> Iterable[list[str]]:
    """method, step, mean, std, n, and one column per seed: the given seeds, or all that occur."""
    seeds = seeds or sorted({seed for i in figure.curves for seed in methods[i].seeds})
    yield ["method", "step", "mean", "std", "n", *(f"seed {seed}" for seed in seeds)]
    for i, curve in figure.curves.items():
        having = [run.seed for run in methods[i].runs if run.values(figure.key).size]
        for g, step in enumerate(curve.grid):
            by_seed = dict(zip(having, curve.seeds[:, g], strict=True))
            values = [number(by_seed.get(seed, np.nan)) for seed in seeds]
            summary = [number(curve.mean[g]), number(curve.std[g]), str(curve.n[g])]
            yield [methods[i].label, number(step), *summary, *values]


def visit_rows(figure: VisitFigure, methods: Sequence[MethodRuns]) -> Iterable[list[str]]:
    """method, step, row, column, mean count: the visited cells of the frames in the picture."""
    yield ["method", "step", "row", "column", "count"]
    for i, visits in figure.visits.items():
        for f in stages(figure):
            for row, col in np.argwhere(visits.counts[f] > 0):
                count = number(visits.counts[f, row, col])
                yield [methods[i].label, number(figure.steps[f]), str(row), str(col), count]


def require_packages(*names: str) -> None:
    """Refuse a report if one of the packages that it needs is missing; by default those of a whole page."""
    for name in names or ("matplotlib", "jinja2"):
        try:
            import_module(name)
        except ImportError as error:
            raise UserError(f'a report needs {name}: pip install "critex[report]"') from error


# PNG ------------------------------------------------------------------------------------------------------


def new_figure(width: float, height: float) -> Any:
    """A matplotlib figure without a window and without global state."""
    require_packages("matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plot_curves(axes: Any, figure: CurveFigure, methods: Sequence[MethodRuns]) -> None:
    """Lines are means, bands ± one standard deviation over seeds."""
    for i, curve in figure.curves.items():
        colour, dash = LIGHT[i % len(LIGHT)], DASHES[i % len(DASHES)]
        unequal = len({run.steps for run in methods[i].runs}) > 1
        fewest = f"{curve.fewest}–" if unequal and curve.fewest < curve.n.max() else ""
        label = f"{methods[i].label} (n={fewest}{curve.n.max()})"
        marker = "o" if curve.grid.size == 1 else None
        style = {"color": colour, "dashes": dash or (None, None), "marker": marker}
        axes.plot(curve.grid, curve.mean, label=label, **style)
        axes.fill_between(
            curve.grid, curve.mean - curve.std, curve.mean + curve.std, color=colour, alpha=0.18, lw=0
        )
    if figure.log:
        axes.set_yscale("log")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def draw_curves(figure: CurveFigure, methods: Sequence[MethodRuns], path: Path) -> None:
    """Draw these curves as one PNG."""
    canvas = new_figure(7, 4)
    axes = canvas.subplots()
    plot_curves(axes, figure, methods)
    axes.set(title=f"{figure.title}: {methods[0].env}", xlabel="environment steps", ylabel=figure.ylabel)
    axes.legend(frameon=False)
    canvas.savefig(path, dpi=150)


def draw_visits(figure: VisitFigure, methods: Sequence[MethodRuns], path: Path) -> None:
    """One row of heat maps per method, early to late, all on one logarithmic scale."""
    shown = stages(figure)
    canvas = new_figure(2.2 * len(shown) + 1, 2.3 * len(figure.visits))
    from matplotlib.colors import LogNorm

    top = max(visits.counts.max() for visits in figure.visits.values())
    norm = LogNorm(min(1.0, top / 10), top) if top > 0 else None
    grid = canvas.subplots(len(figure.visits), len(shown), squeeze=False)
    image = None
    for axes_row, (i, visits) in zip(grid, figure.visits.items(), strict=True):
        for axes, f in zip(axes_row, shown, strict=True):
            image = axes.imshow(np.ma.masked_equal(visits.counts[f], 0), norm=norm, cmap="viridis")
            axes.set(xticks=[], yticks=[], title=f"step {figure.steps[f]:,.0f}")
            axes.set_facecolor("#eeeeee")
        axes_row[0].set_ylabel(methods[i].label)
    canvas.colorbar(image, ax=grid, label="mean visits", shrink=0.8)
    canvas.savefig(path, dpi=150)
