"""`critex compare ALGORITHM`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critex import ranges
from critex.cli.options import options_of, parse
from critex.errors import UserError

if TYPE_CHECKING:
    from critex.suite import Job

PROG = "critex compare"
BONUS = ("alpha", "bonus-in", "scale-value-bonus", "recompute")
"""Options of `critex train` that mean nothing without an explorer, as do --bonus.*"""


@dataclass
class Options(ranges.Options):
    """Train an algorithm alone and with an explorer, with the same options and seeds, and write a report with their
    learning curves. All other options are those of `critex train`."""

    explorer: str = "cae"
    """Explorers to compare with the algorithm alone, separated by commas, as in cae,e3b. Each gets those of the options
    --bonus.* that it has."""
    seeds: str = "1-3"
    """Seeds of each method, as in 1-3 or 1,4,7."""
    jobs: ranges.Count = 2
    """Parallel runs, one thread each."""
    out: Path | None = None
    """Directory of the runs and the report, by default runs/ALGORITHM-ENV. Repeating the command keeps finished runs
    and continues interrupted ones, also with other seeds and explorers."""


def main(args: list[str]) -> None:
    """Train with and without the explorers, and write the report."""
    from critex.algorithms import ALGORITHMS, algorithm_module

    if not args or {"-h", "--help"} & {*args}:
        try:
            parse(Options, f"{PROG} ALGORITHM", ["--help"])
        finally:
            print(
                f"\nalgorithms: {', '.join(ALGORITHMS)}\ncritex help train ALGORITHM lists the other options."
            )
    from critex.cli.train import peek, require_algorithm

    algorithm, *rest = args
    require_algorithm(PROG, algorithm)
    env = algorithm_module(algorithm).Config.env
    own, flags = split(rest)
    options = parse(Options, f"{PROG} {algorithm}", own)
    from critex.cli.report import report_runs
    from critex.report.figures import require_packages
    from critex.run.files import disk_errors
    from critex.suite import launch

    env = peek(rest, "env") or env
    out = options.out or Path("runs", re.sub(r"[^\w.+-]+", "-", f"{algorithm}-{env}"))
    require_packages()
    jobs = comparison(algorithm, options, flags, out)
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    failures = launch(jobs, options.jobs, "compare")
    if failures:
        raise UserError(f"{len(failures)} of {len(jobs)} runs failed; {failures[0]}")
    report_runs([job.out for job in jobs], out / "report")


def split(args: list[str]) -> tuple[list[str], list[list[str]]]:
    """(the options of this command, those of `critex train`, each with its values)."""
    mine = {flag for option in options_of(Options) for flag in option.flags}
    groups: list[list[str]] = [[]]
    for arg in args:
        if arg.startswith("--"):
            groups.append([])
        groups[-1].append(arg)
    first, *others = groups
    own = [group for group in others if group[0].partition("=")[0] in mine]
    return [*first, *chain(*own)], [group for group in others if group not in own]


def comparison(algorithm: str, options: Options, flags: list[list[str]], out: Path) -> list[Job]:
    """The runs, checked before the first one starts; every method gets its first seed before any gets its second."""
    from critex.cli.rehearsal import rehearse
    from critex.cli.suite import parse_seeds
    from critex.cli.train import train_config
    from critex.run.record import CONFIG
    from critex.suite import Job
    from critex.suite.suite import ALWAYS

    if any(group[0].partition("=")[0] == "--seed" for group in flags):
        raise UserError("compare trains several seeds; use --seeds, as in 1-3 or 1,4,7, instead of --seed")
    explorers = dict.fromkeys(["none", *filter(None, options.explorer.replace(" ", "").split(","))])
    if len(explorers) == 1:
        raise UserError("there is no explorer to compare with; name one, as in --explorer cae")
    lacking = {explorer: lacks(explorer, flags) for explorer in explorers if explorer != "none"}
    wrong = set.intersection(*lacking.values())  # given to all, which refuse them

    def suits(explorer: str, flag: str) -> bool:
        return not about_the_bonus(flag) if explorer == "none" else flag not in lacking[explorer] - wrong

    jobs: list[Job] = []
    for seed in parse_seeds(options.seeds):
        for explorer in explorers:
            method = algorithm if explorer == "none" else f"{algorithm}+{explorer}"
            path = out / "runs" / method / f"seed-{seed}"
            given = [group for group in flags if suits(explorer, group[0])]
            train = [*ALWAYS.split(), *chain(*given), "--explorer", explorer, "--seed", str(seed)]
            cfg = train_config(algorithm, [*train, "--no-progress"])
            if (path / CONFIG).exists():
                require_same_options(path, cfg)
            elif len(jobs) < len(explorers):  # the first seed of each
                rehearse(algorithm, cfg)
            jobs.append(Job(f"{method}, seed {seed}", path, (algorithm, *train), cfg.steps))
    return jobs


def about_the_bonus(flag: str) -> bool:
    """Whether the option is only for runs with an explorer."""
    name = flag.partition("=")[0].removeprefix("--").removeprefix("no-").replace("_", "-")
    return name in BONUS or name.startswith("bonus.")


def lacks(explorer: str, flags: list[list[str]]) -> set[str]:
    """The given --bonus.* that the explorer does not have."""
    from critex.explorers import explorer_class

    own = {
        flag
        for option in options_of(explorer_class(explorer).Config, prefix="bonus.")
        for flag in option.flags
    }
    given = {group[0] for group in flags if group[0].startswith("--bonus.")}
    return {flag for flag in given if flag.partition("=")[0].replace("_", "-") not in own}


def require_same_options(path: Path, cfg: Any) -> None:
    """Refuse to continue a run that was begun with other options."""
    from critex.run import read_config
    from critex.run.config import flat, to_dict

    found, given = flat(read_config(path)[1]), flat(to_dict(cfg))
    other = [name for name in given if name in found and found[name] != given[name]]
    if changed := [f"{name} {found[name]}, not {given[name]}" for name in other if name != "out"]:
        raise UserError(f"{path} was begun with {', '.join(changed)}; choose another --out")
