"""`critex regret run | show`: the methods of Table 1 on problems whose regret is known exactly."""

from __future__ import annotations

import base64
import csv
import io
import json
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from critex import ranges
from critex.cli.options import parse
from critex.errors import UserError, unknown
from critex.report.figures import DASHES, LIGHT, new_figure
from critex.report.page import page
from critex.run.files import Lock, atomic_write, disk_errors
from critex.run.metrics import METRICS
from critex.run.record import CARD, versions
from critex.suite import Job, launch
from critex.theory import bound
from critex.theory.bandits import BANDITS
from critex.theory.problems import Array, Integers
from critex.theory.slopes import Slope, checkpoints, slope
from critex.theory.suites import SUITES, Suite, run_cell

PROG = "critex regret"
MANIFEST, CURVE = "regret.toml", "regret.csv"
THEOREM = "cae-theorem"
HEADER = ("method", "α", "regret", "slope", "95 % interval", "potential / bound")


@dataclass
class RunOptions(ranges.Options):
    """Run what is missing of a suite. Called again it continues: finished runs are kept, unfinished ones start over."""

    name: str
    """all, mdps, bandits, or one problem: riverswim, deepsea, lock, random, linear, linear-bandit, … (default: all)"""
    out: Path = Path("runs/regret")
    """Directory of the runs. It belongs to one suite with one budget."""
    jobs: ranges.Count = 2
    """Runs side by side, one thread each; all seeds of a method on a problem are one run."""
    budget: ranges.Positive = 1.0
    """Multiplies the episodes of the suite: 0.1 for a tenth."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name not in SUITES:
            raise unknown("regret suite", self.name, SUITES)


class RegretJob(Job):
    """One method on one problem, all seeds at once."""

    def arguments(self) -> list[str]:
        """`regret cell …`; it is short, so one that was interrupted starts over."""
        return ["regret", "cell", *self.train, "--out", str(self.out.absolute())]


@dataclass
class ShowOptions:
    """Print regrets and slopes with 95 % bootstrap intervals, and write a page with log-log curves."""

    runs: Path
    """Directory of `critex regret run`."""


@dataclass
class CellOptions(ranges.Options):
    """One method on one problem, as `run` starts it."""

    suite: str
    problem: str
    method: str
    episodes: ranges.Count
    out: Path = Path()


def main(args: list[str]) -> None:
    """Run the subcommand that the first argument names."""
    if not args or args[0] in ("-h", "--help"):
        print(f"usage: {PROG} run [NAME] [OPTIONS] | show DIR\n")
        print("  run   Run what is missing of a suite of problems and methods.")
        print("  show  Print regrets and slopes, and write a page with log-log curves.\n")
        print(f"suites: {', '.join(SUITES)}")
    elif args[0] not in ACTIONS:
        raise unknown("command of critex regret", args[0], ("run", "show"))
    else:
        ACTIONS[args[0]](args[1:])


def run(args: list[str]) -> None:
    """Run what is missing of a suite, then show it."""
    named = args and (not args[0].startswith("-") or args[0] in ("-h", "--help"))
    options = parse(RunOptions, f"{PROG} run", args if named else ["all", *args])
    suite, out = SUITES[options.name], options.out
    claim(out, suite.name, options.budget)
    episodes = suite.scaled(options.budget)
    jobs = [
        RegretJob(
            f"{problem}/{method}",
            out / problem / method,
            (suite.name, problem, method, str(episodes)),
            episodes,
        )
        for problem, method in suite.cells()
    ]
    failures = launch(jobs, options.jobs, f"regret {suite.name}", ledger=out)
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures:
        raise UserError(
            f"{len(failures)} of {len(jobs)} runs failed twice; the same command tries them again"
        )
    write_page(out)


def claim(out: Path, suite: str, budget: float) -> None:
    """Reserve the directory for this suite and budget; a `UserError` if it belongs to another."""
    wanted = {"suite": suite, "budget": budget}
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        if not (out / MANIFEST).exists():
            if any(out.iterdir()):
                raise UserError(f"{out} holds other files and no {MANIFEST}; choose another --out")
            atomic_write(out / MANIFEST, tomli_w.dumps(wanted).encode())
    found = read_manifest(out)
    if found != wanted:
        raise UserError(
            f"{out} holds runs of {found['suite']} with budget {found['budget']:g}; "
            "repeat those options or choose another --out"
        )


def read_manifest(out: Path) -> dict[str, Any]:
    """Suite and budget of a directory of runs."""
    try:
        found = tomllib.loads((out / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{out} has no {MANIFEST}; make a directory of runs with: critex regret run --out {out}"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {out / MANIFEST}: {error}") from error
    if found.get("suite") not in SUITES or not isinstance(found.get("budget"), float | int):
        raise UserError(f"{out / MANIFEST} names no suite of this critex; choose another directory")
    return found


def cell(args: list[str]) -> None:
    """One run, as `run` starts it: SUITE PROBLEM METHOD EPISODES --out DIR."""
    options = parse(CellOptions, f"{PROG} cell", args)
    out = options.out
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = Lock(out)
        try:
            with (out / METRICS).open("w", encoding="utf-8") as metrics:
                _run(SUITES[options.suite], options.problem, options.method, options.episodes, out, metrics)
        finally:
            lock.release()


def _run(suite: Suite, problem: str, method: str, episodes: int, out: Path, metrics: io.TextIOBase) -> None:
    began = last = time.perf_counter()

    def progress(episode: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last > 1.0:
            last = now
            metrics.write(json.dumps({"step": episode, "time": now - began}) + "\n")
            metrics.flush()

    outcome = run_cell(problem, method, suite.seeds, episodes, progress=progress)
    taken = time.perf_counter() - began
    metrics.write(json.dumps({"step": episodes, "time": taken}) + "\n")
    at = checkpoints(episodes)
    table = np.column_stack([at, outcome.regret.cumsum(1)[:, at - 1].T])
    text = io.StringIO()
    np.savetxt(text, table, fmt=["%d", *["%.6g"] * len(suite.seeds)], delimiter=",", comments="",
               header="episode," + ",".join(f"seed {seed}" for seed in suite.seeds))  # fmt: skip
    atomic_write(out / CURVE, text.getvalue().encode())
    steps = episodes * len(suite.seeds) * outcome.facts["horizon"]
    card = {**outcome.facts, "episodes": episodes, "seconds": taken, "regret_steps_per_second": steps / taken}
    atomic_write(out / CARD, json.dumps({**card, "versions": versions()}, indent=1).encode())


class Result(NamedTuple):
    """A finished run."""

    problem: str
    method: str
    episodes: Integers  # [G]
    regret: Array  # cumulative, [S, G]
    slope: Slope
    facts: dict[str, Any]


def read_results(out: Path) -> list[Result]:
    """The finished runs of a directory, in the order of the suite."""
    results = []
    for problem, method in SUITES[read_manifest(out)["suite"]].cells():
        path = out / problem / method
        if not (path / CARD).exists():
            continue
        try:
            table = np.loadtxt(path / CURVE, delimiter=",", skiprows=1)
            facts = json.loads((path / CARD).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {path}: {error}; delete it and run the suite again") from error
        episodes, regret = table[:, 0].astype(np.int64), table[:, 1:].T
        results.append(Result(problem, method, episodes, regret, slope(episodes, regret), facts))
    if not results:
        raise UserError(f"{out} has no finished run; run the suite with: critex regret run --out {out}")
    return results


def show(args: list[str]) -> None:
    """Print regrets and slopes, and write the page."""
    write_page(parse(ShowOptions, f"{PROG} show", args).runs)


def row(result: Result) -> tuple[str, ...]:
    """The cells of `HEADER`."""
    final, facts = result.regret[:, -1], result.facts
    spread = f" ± {final.std(ddof=1) if np.ptp(final) > 1e-9 else 0.0:.3g}" if len(final) > 1 else ""
    held = f"{facts['potential'] / facts['potential_bound']:.2f}" if "potential" in facts else "–"
    interval = f"[{result.slope.low:.2f}, {result.slope.high:.2f}]"
    return (
        *(result.method, f"{facts['alpha']:.3g}", f"{final.mean():.4g}{spread}"),
        *(f"{result.slope.value:.2f}", interval, held),
    )


def write_page(out: Path) -> None:
    """The table on stdout, and in `out`/report: index.html, slopes.csv and a picture of every problem."""
    from rich.console import Console
    from rich.table import Table

    results, manifest = read_results(out), read_manifest(out)
    suite = SUITES[manifest["suite"]]
    report = out / "report"
    with disk_errors(report):
        report.mkdir(exist_ok=True)
        sections = []
        for name in dict.fromkeys(result.problem for result in results):
            mine = [result for result in results if result.problem == name]
            table = Table(
                *HEADER, title=f"{name}, {mine[0].episodes[-1]:,} episodes, {len(mine[0].regret)} seeds"
            )
            for result in mine:
                table.add_row(*row(result))
            Console().print(table)
            picture = base64.b64encode(draw(name, mine, report / f"{name}.png")).decode()
            sections.append(
                {"name": name, "rows": [row(r) for r in mine], "picture": f"data:image/png;base64,{picture}"}
            )
        with (report / "slopes.csv").open("w", newline="", encoding="utf-8") as file:
            rows = [(r.problem, *row(r)) for r in results]
            csv.writer(file, lineterminator="\n").writerows([("problem", *HEADER), *rows])
        note = (
            f"Budget {manifest['budget']:g}. Cumulative regret as mean ± standard deviation over seeds; slope of "
            "log regret over log episodes in the last decade, with the 95 % bootstrap interval over seeds. On the right: "
            "terms of the theorem for its own α. No bound is claimed for any other."
        )
        html = page(
            "regret.html.j2",
            {},
            suite=suite.name,
            title=suite.title,
            note=note,
            header=HEADER,
            problems=sections,
        )
        atomic_write(report / "index.html", html.encode())
    print(f"report: {report / 'index.html'}")


def draw(name: str, results: list[Result], path: Path) -> bytes:
    """Cumulative regret on log-log axes, means with bands of one standard deviation, and the theorem's terms."""
    terms = theorem_terms(results)
    canvas = new_figure(11 if terms else 7, 4.5)
    axes, *beside = canvas.subplots(
        1, 2 if terms else 1, squeeze=False, width_ratios=[2, 1] if terms else [1]
    )[0]
    for i, result in enumerate(results):
        colour, dash = LIGHT[i % len(LIGHT)], DASHES[(i + i // len(LIGHT)) % len(DASHES)]
        mean, std = result.regret.mean(0), result.regret.std(0)
        style = {"color": colour, "dashes": dash or (None, None)}
        axes.plot(result.episodes, mean, label=f"{result.method} ({result.slope.value:.2f})", **style)
        axes.fill_between(
            result.episodes, np.maximum(mean - std, 1e-3), mean + std, color=colour, alpha=0.1, lw=0
        )
        if terms and result.method == THEOREM:
            beside[0].plot(result.episodes, mean, label=result.method, **style)
    for grey, (label, curve) in zip(("0.0", "0.4", "0.6"), terms.items(), strict=False):
        beside[0].plot(results[0].episodes, curve, color=grey, ls=":", label=label)
    unit = "rounds" if name in BANDITS else "episodes"
    for each, title in zip((axes, *beside), (name, "terms of the theorem, constants 1"), strict=False):
        each.set(xscale="log", yscale="log", xlabel=unit, ylabel="cumulative regret", title=title)
        each.grid(alpha=0.25)
        each.spines[["top", "right"]].set_visible(False)
        each.legend(frameon=False, fontsize=7)
    canvas.savefig(path, dpi=110)
    return path.read_bytes()


def theorem_terms(results: list[Result]) -> dict[str, Array]:
    """The terms of the theorem with constants 1, for the run with the theorem's own α."""
    for result in results:
        if result.method == THEOREM:
            f, m = result.facts, result.episodes
            dim, horizon = int(f["dim"]), int(f["horizon"])
            error = np.full(m.shape, f["value_error"])  # of the whole run; it can only grow with M
            width, actions = int(f["hidden"]), int(f["actions"])
            return {
                "exploration": bound.exploration_term(f["alpha"], dim, horizon, m, f["ridge"]),
                "noise": bound.noise_term(horizon, m),
                "network, H = I": bound.network_term(error, dim, horizon, m, actions, width),
            }
    return {}


ACTIONS: dict[str, Callable[[list[str]], None]] = {"run": run, "show": show, "cell": cell}
