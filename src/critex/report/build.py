"""From run directories to the report directory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critex.errors import UserError
from critex.report import figures as fig
from critex.report import page
from critex.report.cells import Cells, methods_of
from critex.report.methods import FinalScore, Method, final_score_of, group
from critex.report.runs import load_runs
from critex.report.suite_view import suite_view
from critex.report.tables import Grid
from critex.report.words import number
from critex.run.files import disk_errors
from critex.run.record import CONFIG


@dataclass(frozen=True)
class ReportResult:
    """What a report came to."""

    index: Path
    """The page to open."""
    problems: list[str]
    """One line for each run, file or line that could not be used, and for each run that is not finished."""
    scores: list[FinalScore]


def final_scores(runs: Iterable[Path], problems: list[str] | None = None) -> list[FinalScore]:
    """The final-score table of these runs as data; a list as `problems` receives what is wrong with them."""
    problems = [] if problems is None else problems
    return [final_score_of(method) for method in group(load_runs(runs, problems), problems)]


def write_report(runs: Iterable[Path], out: Path) -> ReportResult:
    """Write index.html, and each figure as PNG and CSV beside it.

    Broken and foreign run directories are named in the result and on the page; a `UserError` where no run is
    left, where `out` is a run itself, and where matplotlib or Jinja2 is missing.
    """
    problems: list[str] = []
    methods = group(load_runs(runs, problems), problems)
    return _write(methods, out, problems)


def write_suite_report(grid: Grid, cells: Cells, key: str, problems: list[str], out: Path) -> ReportResult:
    """The same for the runs of a suite, under a view of the whole: its table, curves of the metric `key`, costs, links.

    Needs no run: cells that were not run are empty.
    """
    methods = [method for task in grid.rows for method in methods_of(cells, grid, task)]
    return _write(methods, out, problems, lambda: suite_view(grid, cells, key, out))


def _write(
    methods: Sequence[Method],
    out: Path,
    problems: list[str],
    view: Callable[[], dict[str, Any] | None] = lambda: None,
) -> ReportResult:
    if (out / CONFIG).exists():
        raise UserError(f"{out} is a run; write the report to another directory, as in --out report")
    fig.new_figure(1, 1)  # complain before anything is written
    scores = [final_score_of(method) for method in methods]
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
            )
            for env, slug in slugs.items()
        ]
        html = page.render(sections, problems, sum(len(method.runs) for method in methods), view())
        index = out / "index.html"
        index.write_text(html, encoding="utf-8")
    return ReportResult(index, problems, scores)


def _slug(env: str, taken: set[str]) -> str:
    """A file name for an environment, `ALE/Pong-v5` → `ALE-Pong-v5`."""
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", env).strip("-") or "env"
    return next(slug for n in range(1, len(taken) + 2) if (slug := base + f"-{n}" * (n > 1)) not in taken)


def _section(
    methods: Sequence[Method], scores: Sequence[FinalScore], out: Path, slug: str, problems: list[str]
) -> dict[str, Any]:
    """What the page shows of one environment; writes its figures on the way."""
    curves = fig.curve_figures(methods)
    for figure in curves:
        stem = out / f"{slug}-{figure.key}"
        fig.write_csv(stem.with_suffix(".csv"), fig.curve_rows(figure, methods))
        fig.draw_curves(figure, methods, stem.with_suffix(".png"))
    visits = fig.visit_figure(methods)
    if visits:
        fig.write_csv(out / f"{slug}-visits.csv", fig.visit_rows(visits, methods))
        fig.draw_visits(visits, methods, out / f"{slug}-visits.png")
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
        "cards": cards,
        "configs": page.config_rows(methods),
        "data": data,
    }


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
