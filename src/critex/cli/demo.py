"""`critex demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from critex import ranges
from critex.cli.options import parse, wrapped
from critex.errors import UserError


@dataclass
class Options(ranges.Options):
    """Train DQN with and without CAE on a DeepSea that ε-greedy does not solve, and write a report."""

    out: Path = Path("demo")
    """Directory of the demo. Repeating the command keeps finished runs and continues interrupted ones."""
    seeds: str = "1-3"
    """Seeds of each method, as in 1-3 or 1,4,7."""
    jobs: ranges.Count = 2
    """Parallel runs, one thread each."""


def main(args: list[str]) -> None:
    """Run the demo, write its report, and print the conclusion."""
    options = parse(Options, "critex demo", args)
    from critex.cli.report import report_runs
    from critex.cli.suite import parse_seeds
    from critex.demo import ABOUT, demo_jobs
    from critex.report.figures import require_packages
    from critex.run.files import disk_errors
    from critex.suite import launch

    require_packages()
    seeds = parse_seeds(options.seeds)
    with disk_errors(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
    jobs = demo_jobs(options.out, seeds)
    failures = launch(jobs, options.jobs, "demo")
    if failures:
        raise UserError("; ".join(map(str, failures)))
    report_runs([job.out for job in jobs], options.out / "report", ABOUT)
    print(f"\n{wrapped(ABOUT)}")
