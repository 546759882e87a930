"""`critex explain RUN`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from critex import ranges
from critex.cli.options import parse


@dataclass
class Options(ranges.Options):
    """Play a trained agent as in the evaluations of its run, and write a page that shows every step: frame, raw and
    scaled bonus, map, and statistics of the features φ."""

    run: Path
    """Directory of the run, finished or interrupted."""
    episodes: ranges.Count = 3
    """Number of episodes to play."""
    seed: ranges.Natural = 0
    """Seed of the environment."""
    max_steps: ranges.Count = 300
    """Show at most this many steps of an episode."""
    out: Path = Path("explain")
    """Directory to write to; its index.html is the page."""
    allow_import: bool = False
    """Allow importing the module of the run's environment, as in my_module:MyEnv-v0. This executes its code."""


def main(args: list[str]) -> None:
    """Write the page, and print its path with notes and warnings."""
    options = parse(Options, "critex explain", args)
    from critex.explain import explain

    index, notes = explain(
        options.run,
        options.out,
        options.episodes,
        options.seed,
        options.max_steps,
        allow_import=options.allow_import,
    )
    for note in notes:
        print(note)
    print(f"page: {index}")
