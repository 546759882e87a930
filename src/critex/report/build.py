"""Write a report directory from run directories."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critex.errors import UserError
from critex.report import figures as fig
from critex.report import page
from critex.report.suite_view import suite_view
from critex.report.trajectory import Trajectory, write_trajectories
from critex.results.cells import Cells
from critex.results.formatting import number
from critex.results.methods import FinalScore, MethodRuns, final_score_of, group
from critex.results.runs import load_runs, measure_of
from critex.run.files import disk_errors
from critex.run.record import CONFIG
from critex.suite.manifest import read_manifest
from critex.tables.catalogue import fill, table_named
from critex.tables.grid import Grid


@dataclass(frozen=True)
class ReportResult:
    """The files written, and problems with the runs."""

    index: Path
    """The page to open."""
    problems: list[str]
    """One line for each run, file or line that could not be used, and for each unfinished run."""
    scores: list[FinalScore]


Play = Callable[[Path], Trajectory | None]
"""The path of a run's agent over a map; None if its environment has none."""


def no_trajectory(_run: Path) -> None:
    """Without playing any agent, there are no paths to draw."""


def write_report(
    runs: Iterable[Path], out: Path, about: str = "", play: Play = no_trajectory
) -> ReportResult:
    """Write index.html, and each figure as PNG and CSV beside it; `about` is a paragraph at its top.

    `play` gives the trajectory of one run of each method, for environments with a map.
    Broken and foreign run directories are listed in the result and on the page. A `UserError` if no usable run
    remains, if `out` is itself a run, or if matplotlib or Jinja2 is missing.
    """
    problems: list[str] = []
    methods = group(load_runs(runs, problems), problems)
    return _write(methods, out, problems, about=about, play=play)


def write_suite_report(
    grid: Grid, cells: Cells, key: str, problems: list[str], out: Path, play: Play = no_trajectory
) -> ReportResult:
    """Write the report of a suite: an overview (table, curves of the metric `key`, costs, links), then each task.

    Cells without runs are empty, so it also works before the first run.
    """
    methods = [
        MethodRuns(task, method, runs[0].config, runs)
        for task in grid.tasks
        for method in grid.methods
        if (runs := cells.get((task, method)))
    ]
    return _write(methods, out, problems, lambda: suite_view(grid, cells, key, out), play=play)


def report_suite(directory: Path, out: Path, play: Play = no_trajectory) -> tuple[ReportResult, Grid]:
    """Write the report of a suite's directory; the result, and the suite's table."""
    table = table_named(read_manifest(directory).suite)
    problems: list[str] = []
    grid, cells = fill(table, directory, problems)
    return write_suite_report(grid, cells, table.curve or "return", problems, out, play), grid


def _write(
    methods: Sequence[MethodRuns],
    out: Path,
    problems: list[str],
    view: Callable[[], dict[str, Any] | None] = lambda: None,
    about: str = "",
    play: Play = no_trajectory,
) -> ReportResult:
    if (out / CONFIG).exists():
        raise UserError(f"{out} is a run; write the report to another directory, as in --out report")
    fig.require_packages()
    measures = {
        env: measure_of(run for method in methods if method.env == env for run in method.runs)
        for env in dict.fromkeys(method.env for method in methods)
    }
    scores = [final_score_of(method, measures[method.env]) for method in methods]
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        slugs: dict[str, str] = {}
        for env in dict.fromkeys(method.env for method in methods):
            slugs[env] = _slug(env, set(slugs.values()))
        sections = [
            _section(
                [method for method in methods if method.env == env],
                [score for score in scores if score.env == env],
                out,
                slug,
                problems,
                play,
            )
            for env, slug in slugs.items()
        ]
        html = page.render(sections, problems, sum(len(method.runs) for method in methods), view(), about)
        index = out / "index.html"
        index.write_text(html, encoding="utf-8")
    return ReportResult(index, problems, scores)


def _slug(env: str, taken: set[str]) -> str:
    """A file name for an environment, `ALE/Pong-v5` → `ALE-Pong-v5`."""
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", env).strip("-") or "env"
    return next(slug for n in range(1, len(taken) + 2) if (slug := base + f"-{n}" * (n > 1)) not in taken)


def _section(
    methods: Sequence[MethodRuns],
    scores: Sequence[FinalScore],
    out: Path,
    slug: str,
    problems: list[str],
    play: Play,
) -> dict[str, Any]:
    """Write the figures of one environment, and return its section of the page."""
    curves = fig.curve_figures(methods)
    for figure in curves:
        stem = out / f"{slug}-{figure.key}"
        fig.write_csv(stem.with_suffix(".csv"), fig.curve_rows(figure, methods))
        fig.draw_curves(figure, methods, stem.with_suffix(".png"))
    visits = fig.visit_figure(methods)
    if visits:
        fig.write_csv(out / f"{slug}-visits.csv", fig.visit_rows(visits, methods))
        fig.draw_visits(visits, methods, out / f"{slug}-visits.png")
    trajectories = _trajectories(methods, problems, play)
    if trajectories:
        write_trajectories(out / f"{slug}-trajectories.png", trajectories)
    cards = page.cost_cards(methods)
    fig.write_csv(out / f"{slug}-scores.csv", _score_rows(scores))
    fig.write_csv(out / f"{slug}-costs.csv", _cost_rows(cards))
    data = {
        "labels": [method.label for method in methods],
        "curves": {figure.key: page.curve_data(figure) for figure in curves},
        "visits": page.visit_data(visits) if visits else None,
    }
    return {
        "env": methods[0].env,
        "slug": slug,
        "methods": methods,
        "scores": page.score_rows(scores),
        "curves": curves,
        "visits": visits,
        "trajectories": trajectories,
        "cards": cards,
        "configs": page.config_rows(methods),
        "data": data,
    }


def _trajectories(methods: Sequence[MethodRuns], problems: list[str], play: Play) -> dict[str, Trajectory]:
    """The path of the first run of each method."""
    found = {}
    for method in methods:
        try:
            if trajectory := play(method.runs[0].path):
                found[method.label] = trajectory
        except UserError as error:
            problems.append(f"no path of {method.label}: {error}")
    return found


def _score_rows(scores: Sequence[FinalScore]) -> Iterable[list[str]]:
    columns = ("mean", "std", "low", "high", "n")
    yield ["method", "seeds", *columns, *(f"evaluation {name}" for name in columns)]
    for score in scores:
        values = [number(getattr(s, name)) for s in (score.training, score.evaluation) for name in columns]
        yield [score.label, " ".join(map(str, score.seeds)), *values]


def _cost_rows(cards: Sequence[dict[str, Any]]) -> Iterable[list[str]]:
    yield ["method", "runs", *page.COSTS]
    for card in cards:
        values = ["" if cost["value"] is None else number(cost["value"]) for cost in card["costs"]]
        yield [card["label"], str(card["runs"]), *values]
