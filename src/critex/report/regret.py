"""The results of `critex regret run`: a table for each problem, and a page with log-log curves."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np

from critex.errors import UserError
from critex.report.figures import DASHES, LIGHT, new_figure, write_csv
from critex.report.page import page
from critex.run.files import atomic_write, disk_errors
from critex.run.record import CARD
from critex.suite.manifest import Kind, read_manifest
from critex.theory import bound
from critex.theory.bandits import BANDITS
from critex.theory.problems import Array, Integers
from critex.theory.slopes import Slope, slope
from critex.theory.suites import SUITES

CURVE = "regret.csv"
REGRET_RUNS = Kind("regret.toml", "critex regret run", SUITES)
THEOREM = "cae-theorem"
HEADER = ("method", "α", "regret", "slope", "95 % interval", "potential / bound")
NOTE = (
    "Budget {budget:g}. Cumulative regret: mean ± standard deviation over seeds. Slope of log regret against log episodes "
    "over the last decade of episodes, with its 95 % bootstrap interval over seeds. Potential / bound: Σ min(1, φᵀA⁻¹φ) "
    "relative to the bound of the elliptical potential lemma."
)
RIGHT = " On the right: the terms of the theorem, for the run with the theorem's α. No bound is claimed for other runs."


class Result(NamedTuple):
    """All seeds of one method on one problem."""

    problem: str
    method: str
    episodes: Integers  # [G]
    regret: Array  # cumulative, [S, G]
    slope: Slope
    facts: dict[str, Any]

    @property
    def title(self) -> str:
        """Problem and size of the run."""
        unit = "rounds" if self.problem in BANDITS else "episodes"
        return f"{self.problem}, {self.episodes[-1]:,} {unit}, {len(self.regret)} seeds"

    def numbers(self) -> dict[str, Any]:
        """The columns of the tables and of slopes.csv."""
        final, facts, (value, low, high) = self.regret[:, -1], self.facts, self.slope
        std = final.std(ddof=1) if len(final) > 1 and np.ptp(final) > 1e-9 else 0.0
        share = facts["potential"] / facts["potential_bound"] if "potential" in facts else math.nan
        return {
            "problem": self.problem,
            "method": self.method,
            "alpha": facts["alpha"],
            "episodes": int(self.episodes[-1]),
            "seeds": len(final),
            "regret": final.mean(),
            "std": std,
            "slope": value,
            "slope_low": low,
            "slope_high": high,
            "potential_share": share,
        }

    def row(self) -> tuple[str, ...]:
        """The cells of `HEADER`."""
        n = self.numbers()
        regret, share = f"{n['regret']:.4g} ± {n['std']:.3g}", n["potential_share"]
        interval = f"[{n['slope_low']:.2f}, {n['slope_high']:.2f}]"
        shown = "–" if math.isnan(share) else f"{share:.2f}"
        return self.method, f"{n['alpha']:.3g}", regret, f"{n['slope']:.2f}", interval, shown


def read_results(out: Path) -> list[Result]:
    """The finished runs of a directory, in the order of the suite."""
    manifest, results = read_manifest(out, kind=REGRET_RUNS), []
    for problem, method in SUITES[manifest.suite].cells():
        path = out / problem / method
        if not (path / CARD).exists():
            continue
        try:
            table = np.loadtxt(path / CURVE, delimiter=",", skiprows=1, ndmin=2)
            facts = json.loads((path / CARD).read_text(encoding="utf-8"))
            needed = {"alpha"} | (
                {"dim", "horizon", "ridge", "actions", "hidden", "value_error"}
                if method == THEOREM
                else set()
            )
            if len(table) == 0 or table.shape[1] < 2:
                raise ValueError(f"{CURVE} has no regret")
            if not isinstance(facts, dict) or needed - facts.keys():
                raise ValueError(f"{CARD} lacks {', '.join(sorted(needed))}")
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {path}: {error}; delete it and run the suite again") from error
        episodes, regret = table[:, 0].astype(np.int64), table[:, 1:].T
        results.append(Result(problem, method, episodes, regret, slope(episodes, regret), facts))
    if not results:
        command = f"critex regret run {manifest.suite} --budget {manifest.budget:g} --out {quote(str(out))}"
        raise UserError(f"{out} has no finished run; run the suite with: {command}")
    return results


def report_regret(out: Path) -> tuple[list[list[Result]], Path]:
    """Write `out`/report: index.html, slopes.csv and a picture of every problem. The results by problem, and the page."""
    results, manifest, report = read_results(out), read_manifest(out, kind=REGRET_RUNS), out / "report"
    problems = [list(group) for _, group in groupby(results, key=lambda result: result.problem)]
    with disk_errors(report):
        report.mkdir(exist_ok=True)
        sections = []
        for group in problems:
            name = group[0].problem
            picture = base64.b64encode(draw(group, report / f"{name}.png")).decode()
            rows = [result.row() for result in group]
            sections.append({"name": name, "rows": rows, "picture": f"data:image/png;base64,{picture}"})
        every = [result.numbers() for result in results]
        rounded = [[f"{v:.6g}" if isinstance(v, float) else v for v in each.values()] for each in every]
        write_csv(report / "slopes.csv", [list(every[0]), *rounded])
        suite, note = SUITES[manifest.suite], NOTE.format(budget=manifest.budget)
        if any(result.method == THEOREM for result in results):
            note += RIGHT
        about = {"suite": suite.name, "title": suite.title, "note": note}
        html = page("regret.html.j2", {}, **about, header=HEADER, problems=sections)
        atomic_write(report / "index.html", html.encode())
    return problems, report / "index.html"


def draw(results: Sequence[Result], path: Path) -> bytes:
    """Cumulative regret on log-log axes, means with bands of one standard deviation, and the theorem's terms."""
    theorem = next((result for result in results if result.method == THEOREM), None)
    figure = new_figure(11 if theorem else 7, 4.5)
    left, *right = figure.subplots(
        1, 2 if theorem else 1, squeeze=False, width_ratios=[2, 1][: 1 + bool(theorem)]
    )[0]
    for i, result in enumerate(results):
        dash = DASHES[(i + i // len(LIGHT)) % len(DASHES)]
        style = {"color": LIGHT[i % len(LIGHT)], "dashes": dash or (None, None)}
        mean, std = result.regret.mean(0), result.regret.std(0, ddof=1)
        left.plot(result.episodes, mean, label=f"{result.method} ({result.slope.value:.2f})", **style)
        band = {"color": style["color"], "alpha": 0.1, "lw": 0}
        left.fill_between(result.episodes, np.maximum(mean - std, 1e-3), mean + std, **band)
        if result is theorem:
            right[0].plot(result.episodes, mean, label=result.method, **style)
    if theorem:
        for grey, (label, curve) in zip(("0.0", "0.4", "0.6"), theorem_terms(theorem).items(), strict=True):
            right[0].plot(theorem.episodes, curve, color=grey, ls=":", label=label)
    titles = (results[0].title, "terms of the theorem, constants 1")
    for axes, title in zip((left, *right), titles, strict=False):
        unit = "rounds" if results[0].problem in BANDITS else "episodes"
        axes.set(xscale="log", yscale="log", xlabel=unit, ylabel="cumulative regret", title=title)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=110)
    return path.read_bytes()


def theorem_terms(result: Result) -> dict[str, Array]:
    """The three terms of the theorem with constants 1, [G] each.

    ‖q − q̃‖ is taken over the whole run, an upper bound for the earlier episodes, since it can only grow.
    """
    f, m = result.facts, result.episodes
    dim, horizon = int(f["dim"]), int(f["horizon"])
    error = np.full(m.shape, f["value_error"])
    return {
        "exploration": bound.exploration_term(f["alpha"], dim, horizon, m, f["ridge"]),
        "noise": bound.noise_term(horizon, m),
        "network, H = I": bound.network_term(error, dim, horizon, m, int(f["actions"]), int(f["hidden"])),
    }
