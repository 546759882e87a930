"""The page: figures and tables as plain data for the template, and as JSON for its script."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from critex import __version__
from critex.report.figures import DARK, DASHES, LIGHT, CurveFigure, VisitFigure, require_packages
from critex.results.formatting import ABSENT, interval, spread, text
from critex.results.methods import FinalScore, MethodRuns, differing, score_columns, shown
from critex.results.stats import Floats

COSTS = {
    "parameters": ("Parameters of the agent", ""),
    "parameters_added": ("Parameters added by the explorer", ""),
    "bytes": ("Memory of the bonus", "bytes"),
    "bonus_us_per_step": ("Bonus, per step", "µs"),
    "steps_per_second": ("Environment steps per second", ""),
    "seconds": ("Wall time", "s"),
    "max_rss_bytes": ("Peak memory of the process", "bytes"),
}
"""The entries of card.json on the page: label and unit."""


def score_rows(scores: Sequence[FinalScore]) -> dict[str, Any]:
    """The final-score table of one environment, with the positions of its small interval plots in percent."""
    columns = score_columns(scores)
    values = [[getattr(score, name) for name in columns] for score in scores]
    ends = [v for s, *_ in values for v in (s.low, s.mean, s.high) if math.isfinite(v)]
    low, width = min(ends, default=0.0), (max(ends, default=0.0) - min(ends, default=0.0)) or 1.0

    def place(value: float) -> float | None:
        return round(100 * (value - low) / width, 2) if math.isfinite(value) else None

    return {
        "columns": [heading[0].upper() + heading[1:] for heading in columns.values()],
        "rows": [
            {
                "label": score.label,
                "values": each,
                "places": [place(v) for v in (each[0].low, each[0].mean, each[0].high)],
            }
            for score, each in zip(scores, values, strict=True)
        ],
    }


def cost_cards(methods: Sequence[MethodRuns]) -> list[dict[str, Any]]:
    """The costs of each method: means over its finished runs."""
    cards = []
    for method in methods:
        finished = [run.card for run in method.runs if run.card]
        costs = []
        for key, (name, unit) in COSTS.items():
            values = [c[key] for c in finished if key in c]
            costs.append(
                {"key": key, "name": name, "value": float(np.mean(values)) if values else None, "unit": unit}
            )
        cards.append({"label": method.label, "runs": len(finished), "costs": costs})
    return cards


def config_rows(methods: Sequence[MethodRuns]) -> list[dict[str, Any]]:
    """One row per option: its value in each method, and whether they differ."""
    different = set(differing([method.config for method in methods]))
    names = dict.fromkeys(name for method in methods for name in method.config)
    return [
        {
            "name": name,
            "values": [shown(method.config.get(name, ABSENT)) for method in methods],
            "differs": name in different,
        }
        for name in names
    ]


def curve_data(figure: CurveFigure, seeds: bool = True) -> dict[str, Any]:
    """A figure as the script reads it, with or without the curves of single seeds."""
    series = [
        {
            "method": i,
            "mean": numbers(curve.mean),
            "std": numbers(curve.std),
            "n": curve.n.tolist(),
            "seeds": [numbers(seed) for seed in curve.seeds] if seeds else [],
        }
        for i, curve in figure.curves.items()
    ]
    return {"x": numbers(figure.grid), "log": figure.log, "ylabel": figure.ylabel, "series": series}


def visit_data(figure: VisitFigure) -> dict[str, Any]:
    """Heat maps as the script reads them: one byte per cell, 0 if never visited, else 1 … 255 by log(1 + count)."""
    top = max(float(visits.counts.max()) for visits in figure.visits.values())
    maps = []
    for i, visits in figure.visits.items():
        level = np.log1p(visits.counts) / max(math.log1p(top), 1e-12)
        bytes_ = np.where(visits.counts > 0, 1 + np.rint(254 * level), 0).astype(np.uint8)
        frames = [base64.b64encode(frame.tobytes()).decode() for frame in bytes_]
        maps.append({"method": i, "frames": frames, "visited": numbers(visits.visited)})
    rows, cols = next(iter(figure.visits.values())).counts.shape[1:]
    return {"rows": rows, "cols": cols, "top": top, "steps": numbers(figure.steps), "maps": maps}


def numbers(values: Floats) -> list[float | None]:
    """Each value to six digits; None if it is not finite."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]


def embedded(data: Any) -> str:
    """JSON that cannot close the script element around it."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def render(
    sections: Sequence[dict[str, Any]],
    problems: Sequence[str],
    runs: int,
    suite: dict[str, Any] | None = None,
    about: str = "",
) -> str:
    """The report: the overview of the suite, if there is one, and a section for each environment."""
    data = {"sections": [part["data"] for part in (*sections, *(suite["panels"] if suite else ()))]}
    slugs = {section["env"]: section["slug"] for section in sections}
    words: dict[str, Any] = {"sections": sections, "problems": problems, "runs": runs, "suite": suite}
    return page("index.html.j2", data, **words, slugs=slugs, about=about)


def page(template: str, data: dict[str, Any], package: str = "critex.report", **words: Any) -> str:
    """Render a self-contained page; its script reads `data`, its template shows `words`.

    Templates are those of `package` and, shared by all pages, those of the report.
    """
    require_packages("jinja2")
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name, "template") for name in (package, "critex.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"text": text, "spread": spread, "interval": interval}
    dashes = [" ".join(map(str, dash)) for dash in DASHES]
    data = {"colours": len(LIGHT), "dashes": dashes, **data}
    looks = {"light": LIGHT, "dark": DARK, "dashes": dashes, "version": __version__}
    return environment.get_template(template).render(data=Markup(embedded(data)), **looks, **words)
