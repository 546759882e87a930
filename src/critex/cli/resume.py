"""`critex resume RUN`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from critex.cli.options import parse
from critex.console import say


@dataclass
class Options:
    """Continue an interrupted run from its last checkpoint, exactly as if it had never stopped."""

    run: Path
    """Directory of the run."""
    allow_import: bool = False
    """Allow importing the module of the run's environment, as in my_module:MyEnv-v0. This executes its code."""


def main(args: list[str]) -> None:
    """Continue the run to its end."""
    options = parse(Options, "critex resume", args)
    from critex.algorithms import algorithm_module, load_config
    from critex.run import Run, read_config

    name, data = read_config(options.run)
    cfg = load_config(name, data, allow_import=options.allow_import)
    with Run.open(options.run, cfg) as run:
        algorithm_module(name).train(cfg, run)
        say(f"finished: {run.path}")
