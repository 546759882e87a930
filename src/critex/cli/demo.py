"""`critex demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from critex import ranges
from critex.cli.options import parse
from critex.errors import UserError


@dataclass
class Options(ranges.Options):
    """Train DQN with and without CAE on a DeepSea that ε-greedy does not solve, and write a report."""

    out: Path = Path("demo")
    """Directory of the demo. Repeating the command keeps finished runs and continues interrupted ones."""
    seeds: ranges.Count = 3
    """Runs of each method."""
    jobs: ranges.Count = 2
    """Parallel runs, one thread each."""


def main(args: list[str]) -> None:
    """Run the demo, write its report, and print the conclusion."""
    options = parse(Options, "critex demo", args)
    from critex.cli.report import report_runs
    from critex.demo import ABOUT, demo_jobs
    from critex.report.figures import require_packages
    from critex.run.files import disk_errors
    from critex.suite import launch

    require_packages()
    with disk_errors(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
    jobs = demo_jobs(options.out, range(1, options.seeds + 1))
    failures = launch(jobs, options.jobs, "demo")
    if failures:
        raise UserError("; ".join(map(str, failures)))
    report_runs([job.out for job in jobs], options.out / "report", ABOUT)
    print(f"\n{ABOUT}")
