"""`critex regret run | show`: the methods of Table 1 on problems whose regret is known exactly."""

from __future__ import annotations

import io
import json
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TextIO

from critex import ranges
from critex.cli.options import parse
from critex.errors import UserError, unknown

PROG = "critex regret"


@dataclass
class RunOptions(ranges.Options):
    """Run the missing runs of a suite. Repeat the command to continue: finished runs are kept, unfinished ones start over."""

    name: str
    """all, mdps, bandits, or one problem: riverswim, deepsea, lock, random, linear, linear-bandit, quadratic-bandit,
    cosine-bandit (default: all)"""
    out: Path = Path("runs/regret")
    """Directory of the runs. It belongs to one suite with one budget."""
    jobs: ranges.Count = 2
    """Parallel runs, one thread each; one run covers all seeds of a method on a problem."""
    budget: ranges.Positive = 1.0
    """Fraction of the suite's episodes to run: 0.1 for a tenth."""

    def __post_init__(self) -> None:
        from critex.theory.suites import SUITES

        super().__post_init__()
        if self.name not in SUITES:
            raise unknown("regret suite", self.name, SUITES)


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


ACTIONS = {"run": RunOptions, "show": ShowOptions, "cell": CellOptions}


def main(args: list[str]) -> None:
    """Run the subcommand named by the first argument."""
    if not args or args[0] in ("-h", "--help"):
        print(f"usage: {PROG} run [NAME] [OPTIONS] | show DIR\n")
        print("  run   Run the missing runs of a suite of problems and methods.")
        print("  show  Print regrets and slopes, and write a page with log-log curves.\n")
        print(f"{PROG} run --help names the suites.")
        return
    action, *rest = args
    if action not in ACTIONS:
        raise unknown("command of critex regret", action, ("run", "show"))
    if action == "run" and not {"-h", "--help"} & {*rest}:
        first = bool(rest) and not rest[0].startswith("-")  # a name, right or wrong
        # after `--budget` it is a value, after `--budget=0.1` or a value it is a name
        later = any(
            not arg.startswith("-") and (not before.startswith("-") or "=" in before)
            for before, arg in pairwise(rest)
        )
        rest = rest if first or later else ["all", *rest]
    match parse(ACTIONS[action], f"{PROG} {action}", rest):
        case RunOptions() as options:
            run(options)
        case ShowOptions(runs):
            show(runs)
        case CellOptions() as cell:
            run_one(cell)


def run(options: RunOptions) -> None:
    """Run the missing runs of a suite, then show them."""
    from critex.report.figures import require_packages
    from critex.report.regret import REGRET_RUNS
    from critex.suite import Job, claim, launch
    from critex.theory.suites import SUITES

    class RegretJob(Job):
        """One method on one problem, all seeds at once. It is short, so an interrupted one starts over."""

        def arguments(self) -> list[str]:
            return ["regret", "cell", *self.train, "--out", str(self.out.absolute())]

    require_packages()
    suite, out = SUITES[options.name], options.out
    claim(out, suite, options.budget, REGRET_RUNS)
    episodes = suite.scaled(options.budget)
    jobs = []
    for problem, method in suite.cells():
        arguments = (suite.name, problem, method, str(episodes))
        jobs.append(RegretJob(f"{problem}/{method}", out / problem / method, arguments, episodes))
    failures = launch(jobs, options.jobs, f"regret {suite.name}", ledger=out)
    for failure in failures:
        print(f"{failure.job.label} {failure.how}; see {failure.job.log}", file=sys.stderr)
    if failures:
        total = f"{len(failures)} of {len(jobs)}"
        raise UserError(f"{total} runs failed; the same command tries them again")
    show(out)


def show(out: Path) -> None:
    """Print a table for each problem, and write the page."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from critex.report.regret import HEADER, report_regret

    problems, page = report_regret(out)
    for results in problems:
        table = Table(title=results[0].title)
        for name in HEADER:
            table.add_column(name, overflow="fold")
        for result in results:
            table.add_row(*map(Text, result.row()))  # Text, so that [nan, nan] is not read as markup
        Console().print(table)
    print(f"report: {page}")


def run_one(options: CellOptions) -> None:
    """One run: its curve and, when it is finished, its card."""
    import numpy as np

    from critex.data.files import atomic_write
    from critex.report.regret import CURVE
    from critex.run.files import Lock, disk_errors
    from critex.run.metrics import METRICS
    from critex.run.record import CARD, versions
    from critex.theory.slopes import checkpoints
    from critex.theory.suites import SUITES, run_cell

    if options.suite not in SUITES:
        raise unknown("regret suite", options.suite, SUITES)
    if (options.problem, options.method) not in SUITES[options.suite].cells():
        raise UserError(f"{options.suite} has no run of {options.method} on {options.problem}")
    out, episodes, seeds = options.out, options.episodes, SUITES[options.suite].seeds
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = Lock(out)
        try:
            with (out / METRICS).open("w", encoding="utf-8") as file:
                clock = Clock(file)
                outcome = run_cell(options.problem, options.method, seeds, episodes, progress=clock)
                seconds = clock.write(episodes)
            at = checkpoints(episodes)
            table, text = np.column_stack([at, outcome.regret.cumsum(1)[:, at - 1].T]), io.StringIO()
            header = ",".join(("episode", *(f"seed {seed}" for seed in seeds)))
            np.savetxt(text, table, ["%d", *["%.6g"] * len(seeds)], ",", header=header, comments="")
            atomic_write(out / CURVE, text.getvalue().encode())
            steps = episodes * len(seeds) * outcome.facts["horizon"]
            speed = {"episodes": episodes, "seconds": seconds, "regret_steps_per_second": steps / seconds}
            card = {**outcome.facts, **speed, "versions": versions()}
            atomic_write(out / CARD, json.dumps(card, indent=1).encode())
        finally:
            lock.release()


class Clock:
    """Writes the progress of a run, at most once a second."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._began = self._last = time.perf_counter()

    def __call__(self, episode: int) -> None:
        if time.perf_counter() - self._last > 1.0:
            self.write(episode)

    def write(self, episode: int) -> float:
        """A line of metrics; returns the seconds since the start."""
        self._last = time.perf_counter()
        seconds = self._last - self._began
        self._file.write(json.dumps({"step": episode, "time": seconds}) + "\n")
        self._file.flush()
        return seconds
