"""`critex suite list | show NAME | run NAME`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from critex.errors import UserError, unknown
from critex.suite.launch import launch
from critex.suite.manifest import claim
from critex.suite.places import ray_cluster
from critex.suite.suite import ALWAYS
from critex.suite.suites import SUITES, suite_named

Parse = Callable[..., Any]
"""`critex.cli.parse`."""


def main(args: list[str], prog: str, parse: Parse) -> None:
    """Call what the first argument names."""
    if not args or args[0] in ("-h", "--help"):
        print(f"usage: {prog} list | show NAME | run NAME [OPTIONS]\n")
        for name, action in ACTIONS.items():
            print(f"  {name:<5} {action.__doc__}")
        print(f"\n{prog} run --help tells more.")
    elif args[0] not in ACTIONS:
        raise unknown("command of critex suite", args[0], ACTIONS)
    else:
        ACTIONS[args[0]](args[1:], f"{prog} {args[0]}", parse)


def list_suites(args: list[str], prog: str, parse: Parse) -> None:
    """Name every suite and its size."""

    def options() -> None:
        """Name every suite and its size."""

    parse(options, prog, args)
    for suite in SUITES.values():
        jobs = suite.jobs(Path())
        sizes = f"{len(suite.tasks)} tasks, {len(suite.methods)} methods, {len(suite.seeds)} seeds"
        steps = sum(job.steps for job in jobs)
        print(f"{suite.name}\n    {suite.title}\n    {len(jobs)} runs ({sizes}), {steps:.2g} steps")


def show(args: list[str], prog: str, parse: Parse) -> None:
    """Print the constants of a suite and the commands they make."""

    def options(name: str, /) -> str:
        """Print the constants of a suite and the commands they make.

        Args:
            name: one of those that `critex suite list` names
        """
        return name

    suite = suite_named(parse(options, prog, args))
    print(f"{suite.name}, version {suite.version}: {suite.title}")
    print(f"seeds: {', '.join(map(str, suite.seeds))}")
    print(f"all runs: {ALWAYS}\n")
    for task in suite.tasks:
        print(task.name)
        for _, method in suite.cells(tasks=[task.name]):
            arguments = " ".join(suite.arguments(task, method))
            print(f"  {method.name}: critex train {arguments} --steps {suite.steps(task, method)}")


@dataclass(frozen=True)
class RunOptions:
    """Run what is missing of a suite. Called again it goes on: finished runs are kept, interrupted ones resumed."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """One of those that `critex suite list` names."""
    out: Path | None = None
    """Directory of the runs (none: runs/NAME). It belongs to one suite with one budget."""
    jobs: int | None = None
    """Runs side by side, one thread each (none: 2 here, as many as a cluster has CPUs)."""
    only: str = ""
    """Methods to run, divided by commas: sac for all of SAC, sac+cae for that one, sac+none for SAC alone."""
    task: str = ""
    """Tasks to run, divided by commas."""
    seeds: str = ""
    """Seeds to run, as in 1-3 or 1,4,7."""
    budget: float = 1.0
    """Times the steps of the suite: 0.1 for a tenth. Every table made of the runs says so."""
    ray: bool = False
    """Start a Ray cluster on this machine and run there."""
    ray_address: str | None = None
    """Run on the Ray cluster at this address, as in auto or host:6379. Its nodes need this critex and its extras, and
    must see the directory of the runs under the same path."""

    def __post_init__(self) -> None:
        if not 0 < self.budget < float("inf"):
            raise UserError(f"--budget is {self.budget}; it must be a positive number")
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"--jobs is {self.jobs}; it must be at least 1")
        if self.ray and self.ray_address:
            raise UserError("--ray starts a cluster, --ray-address names one; give one of them")


def run(args: list[str], prog: str, parse: Parse) -> None:
    """Run what is missing of a suite, here or on a Ray cluster."""
    options: RunOptions = parse(RunOptions, prog, args)
    suite = suite_named(options.name)
    only, tasks = (tuple(filter(None, words.split(","))) for words in (options.only, options.task))
    out = options.out or Path("runs", suite.name)
    jobs = suite.jobs(out, options.budget, only, tasks, parse_seeds(options.seeds))
    claim(out, suite, options.budget)
    with ExitStack() as stack:
        place, parallel = None, options.jobs or 2
        if options.ray or options.ray_address:
            place = stack.enter_context(ray_cluster(options.ray_address, parallel))
            parallel = options.jobs or place.cpus
        failures = launch(jobs, parallel, suite.name, place, out)
    for failure in failures:
        print(f"{failure.job.label} {failure.how}; {failure.job.log} ends with:", file=sys.stderr)
        print("".join(f"    {line}\n" for line in failure.tail), end="", file=sys.stderr)
    if failures:
        raise UserError(
            f"{len(failures)} of {len(jobs)} runs failed twice; the same command tries them again"
        )
    print(f"finished: {len(jobs)} runs in {out}")


def parse_seeds(text: str) -> tuple[int, ...]:
    """`1-3,7` → (1, 2, 3, 7)."""
    seeds: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise UserError(f"--seeds is {text!r}; it must be as in 1-3 or 1,4,7")
        seeds += range(first, last + 1)
    return tuple(dict.fromkeys(seeds))


ACTIONS: dict[str, Callable[[list[str], str, Parse], None]] = {"list": list_suites, "show": show, "run": run}
