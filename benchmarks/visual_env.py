"""What the ViZDoom environment costs, and what it leaves behind.

    python benchmarks/visual_env.py                # share of coverage in a step
    python benchmarks/visual_env.py --resets 2000  # also: resets of one environment, with their processes and memory

Times are CPU times of this process and of its game, so other load on the machine hardly changes their ratio.
"""

import argparse
import os
import resource
from pathlib import Path
from time import process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from critex.envs import make

TICK = os.sysconf("SC_CLK_TCK")


def games() -> list[Path]:
    """/proc directories of the game processes that this process has started."""
    mine = f"PPid:\t{os.getpid()}\n"
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:  # it has just ended
            continue
        if "Name:\tvizdoom" in text and mine in text:
            found.append(status.parent)
    return found


def game_seconds() -> float:
    """CPU seconds of the running games."""
    return sum(sum(map(int, (path / "stat").read_text().split()[13:15])) / TICK for path in games())


def step_costs(resolution: str, steps: int = 2000) -> None:
    """Print milliseconds of a step and of the coverage in it."""
    env: Any = make(f"VizdoomExplore-train-v0?resolution={resolution}&steps={steps}")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    began, game = process_time(), game_seconds()
    for action in rng.integers(3, size=steps - 1):
        env.step(action)
    whole = (process_time() - began + game_seconds() - game) / steps
    inner = env.unwrapped
    places, headings = inner.path[-500:], rng.uniform(-np.pi, np.pi, 500)
    began = process_time()
    for (row, column), heading in zip(places, headings, strict=True):
        inner.fog.look(row, column, heading)
    look = (process_time() - began) / 500
    env.close()
    print(
        f"{resolution}: a step {1e3 * whole:.2f} ms, coverage {1e3 * look:.3f} ms of it, {look / whole:.1%}",
        flush=True,
    )


def resets(count: int) -> None:
    """Print processes and memory in the course of many resets."""
    env: Any = make("VizdoomExplore-train-v0?resolution=40x30")
    most = 0
    for seed in range(count):
        env.reset(seed=seed)
        env.step(np.int64(0))
        most = max(most, len(games())) if seed % 20 == 0 else most
        if seed + 1 in (count // 4, count // 2, count):
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{seed + 1} resets: at most {most} game process, {memory:.0f} MiB peak memory", flush=True)
    env.close()
    left = len(games())
    print(f"after close: {left} game processes")
    assert most == 1 and left == 0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--resets", type=int, default=0)
    options = parser.parse_args()
    for resolution in ("40x30", "80x60"):
        step_costs(resolution)
    if options.resets:
        resets(options.resets)


if __name__ == "__main__":
    main()
