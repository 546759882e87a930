"""The page: figures and tables as plain data for the template, and for its script as JSON."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from critex import __version__
from critex.errors import UserError
from critex.report.figures import DARK, DASHES, LIGHT, CurveFigure, VisitFigure
from critex.report.methods import FinalScore, Method, differing, shown
from critex.report.stats import Floats
from critex.report.words import ABSENT, interval, spread, text

COSTS = {
    "parameters": ("Parameters of the agent", ""),
    "parameters_added": ("Parameters added by the explorer", ""),
    "bytes": ("Memory of the bonus", "bytes"),
    "bonus_us_per_step": ("Bonus, per step", "µs"),
    "steps_per_second": ("Environment steps per second", ""),
    "seconds": ("Wall time", "s"),
    "max_rss_bytes": ("Peak memory of the process", "bytes"),
}
"""What of card.json the page shows: name and unit."""


def score_rows(scores: Sequence[FinalScore]) -> list[dict[str, Any]]:
    """The final-score table of one environment, with the places of a small interval plot in percent."""
    ends = [v for s in scores for v in (s.training.mean, s.training.low, s.training.high) if math.isfinite(v)]
    low, width = min(ends, default=0.0), (max(ends, default=0.0) - min(ends, default=0.0)) or 1.0

    def place(value: float) -> float | None:
        return round(100 * (value - low) / width, 2) if math.isfinite(value) else None

    rows = []
    for score in scores:
        places = [place(v) for v in (score.training.low, score.training.mean, score.training.high)]
        rows.append({"score": score, "places": places})
    return rows


def cost_cards(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """What each method cost: means over its finished runs."""
    cards = []
    for method in methods:
        finished = [run.card for run in method.runs if run.card]
        costs = []
        for key, (name, unit) in COSTS.items():
            values = [c[key] for c in finished if isinstance(c.get(key), int | float)]
            costs.append(
                {"key": key, "name": name, "value": float(np.mean(values)) if values else None, "unit": unit}
            )
        cards.append({"label": method.label, "runs": len(finished), "costs": costs})
    return cards


def config_rows(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Every option as a row, its values side by side, and whether they differ."""
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
    """A figure as the script reads it, with or without its single seeds."""
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
    """Heat maps as the script reads them: a byte per cell, 0 for never visited, else 1 … 255 by log(1 + count)."""
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
    """Six digits of each, and null where there is none."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]


def embedded(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def render(
    sections: Sequence[dict[str, Any]],
    problems: Sequence[str],
    runs: int,
    suite: dict[str, Any] | None = None,
) -> str:
    """The report: a section for each environment, under the view of a suite if there is one."""
    data = {"sections": [part["data"] for part in (*sections, *(suite["panels"] if suite else ()))]}
    slugs = {section["env"]: section["slug"] for section in sections}
    return page(
        "index.html.j2", data, sections=sections, problems=problems, runs=runs, suite=suite, slugs=slugs
    )


def page(template: str, data: dict[str, Any], **words: Any) -> str:
    """A whole page, self-contained; `data` is what its script reads, `words` what the template shows."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise UserError('a report needs Jinja2: pip install "critex[report]"') from error
    environment = Environment(
        loader=PackageLoader("critex.report", "template"),
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
