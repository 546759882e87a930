"""`critex suite list | show NAME | run NAME`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from critex import ranges
from critex.cli.options import parse
from critex.errors import UserError, printable, unknown

if TYPE_CHECKING:
    from critex.suite import Job

PROG = "critex suite"


@dataclass
class ListOptions:
    """List every suite and its size."""


@dataclass
class ShowOptions:
    """Print the command of every run in a suite."""

    name: str
    """A name from `critex suite list`."""


@dataclass
class RunOptions(ranges.Options):
    """Run the missing runs of a suite. Repeat the command to continue: finished runs are kept, interrupted ones
    resumed."""

    name: str
    """A name from `critex suite list`."""
    out: Path | None = None
    """Directory of the runs, by default runs/NAME. It belongs to one suite with one budget."""
    jobs: ranges.Count | None = None
    """Parallel runs, one thread each; by default 2 on this machine, and one per CPU on a cluster. Those of its runs that
    another command has started on this machine count, too."""
    only: str = ""
    """Methods to run, separated by commas: sac for all of SAC, sac+cae for that one, sac+none for SAC alone."""
    task: str = ""
    """Tasks to run, separated by commas."""
    seeds: str = ""
    """Seeds to run, as in 1-3 or 1,4,7."""
    budget: ranges.Positive = 1.0
    """Fraction of the suite's steps to run, as in 0.1. Every table made from the runs states it."""
    ray: bool = False
    """Start a Ray cluster on this machine and run there."""
    ray_address: str | None = None
    """Run on the Ray cluster at this address, as in auto or host:6379. Its nodes need this critex with the same
    extras, and must see the directory of the runs under the same path."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ray and self.ray_address:
            raise UserError("--ray starts a cluster, --ray-address names one; give only one of them")


ACTIONS = {"list": ListOptions, "show": ShowOptions, "run": RunOptions}


def main(args: list[str]) -> None:
    """Run the subcommand named by the first argument."""
    if not args or args[0] in ("-h", "--help"):
        print(f"usage: {PROG} list | show NAME | run NAME [OPTIONS]\n")
        for name, options in ACTIONS.items():
            print(f"  {name:<5} {(options.__doc__ or '').partition('.')[0]}.")
        print("\ncritex help suite run lists its options.")
        return
    if args[0] not in ACTIONS:
        raise unknown("command of critex suite", args[0], ACTIONS)
    match parse(ACTIONS[args[0]], f"{PROG} {args[0]}", args[1:]):
        case ListOptions():
            list_suites()
        case ShowOptions(name):
            show(name)
        case RunOptions() as options:
            run(options)


def list_suites() -> None:
    """Print the name, title and size of every suite."""
    from critex.suite import SUITES

    for suite in SUITES.values():
        jobs = suite.jobs(Path())
        sizes = {"task": suite.tasks, "method": suite.methods, "seed": suite.seeds}
        counts = ", ".join(f"{len(each)} {name}{'s' * (len(each) != 1)}" for name, each in sizes.items())
        steps = sum(job.steps for job in jobs)
        print(f"{suite.name}\n    {suite.title}\n    {len(jobs)} runs ({counts}), {steps:,} steps")


def show(name: str) -> None:
    """Print the commands of a suite."""
    from critex.suite import suite_named
    from critex.suite.suite import ALWAYS

    suite = suite_named(name)
    print(f"{suite.name}, version {suite.version}: {suite.title}")
    print(f"seeds: {', '.join(map(str, suite.seeds))}")
    print(f"all runs: {ALWAYS}\n")
    for task in suite.tasks:
        print(task.name)
        for _, method in suite.cells(tasks=[task.name]):
            arguments = " ".join(suite.arguments(task, method))
            print(f"  {method.name}: critex train {arguments} --steps {suite.steps(task, method)}")


def run(options: RunOptions) -> None:
    """Run the missing runs; print the end of the log of every run that failed."""
    from critex import suite as suites

    suite = suites.suite_named(options.name)
    only, tasks = (
        tuple(filter(None, map(str.strip, names.split(",")))) for names in (options.only, options.task)
    )
    out = options.out or Path("runs", suite.name)
    jobs = suite.jobs(out, options.budget, only, tasks, parse_seeds(options.seeds) if options.seeds else ())
    if not options.ray_address:  # elsewhere, other packages may be installed
        rehearse_each(jobs, options.budget)
    with ExitStack() as stack:
        place, parallel = None, options.jobs or 2
        if options.ray or options.ray_address:
            place = stack.enter_context(suites.ray_cluster(options.ray_address, parallel))
            parallel = options.jobs or place.cpus
        suites.claim(out, suite, options.budget)
        failures = suites.launch(jobs, parallel, suite.name, place, out)
    for failure in failures:
        print(f"{failure.job.label} {failure.how}; {failure.job.log} ends with:", file=sys.stderr)
        print("".join(f"    {printable(line)}\n" for line in failure.tail), end="", file=sys.stderr)
    if failures:
        raise UserError(f"{len(failures)} of {len(jobs)} runs failed; the same command tries them again")
    print(f"finished: {len(jobs)} run{'s' * (len(jobs) != 1)} in {out}")


def rehearse_each(jobs: Sequence[Job], budget: float) -> None:
    """Refuse jobs that would be refused, before anything is written: of each algorithm, the shortest run that is new."""
    from critex.cli.rehearsal import rehearse
    from critex.cli.train import train_config
    from critex.run.record import CONFIG

    shortest: dict[str, Job] = {}
    for job in sorted(jobs, key=lambda job: job.steps):
        if not (job.out / CONFIG).exists():
            shortest.setdefault(job.train[0], job)
    for job in shortest.values():
        algorithm, *flags = job.train
        try:
            rehearse(algorithm, train_config(algorithm, flags))
        except UserError as error:
            start = f"with --budget {budget:g}, " if budget != 1 else ""
            raise UserError(f"{start}{job.label} cannot run: {error}") from error


def parse_seeds(text: str) -> tuple[int, ...]:
    """`1-3,7` → (1, 2, 3, 7)."""
    seeds: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise UserError(f"--seeds is {text!r}; write seeds as in 1-3 or 1,4,7")
        if last > ranges.LARGEST or last - first >= 1000:
            raise UserError(
                f"--seeds is {text!r}; give at most 1,000 seeds in one range, each at most {ranges.LARGEST}"
            )
        seeds += range(first, last + 1)
    if not seeds:
        raise UserError(f"--seeds is {text!r}; write seeds as in 1-3 or 1,4,7")
    return tuple(dict.fromkeys(seeds))
