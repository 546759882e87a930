"""What a suite costs: environment steps per CPU second of each of its tasks and methods, and CPU hours in all.

    python -P benchmarks/costs.py mujoco-v4 mujoco-dsac       # a few CPU seconds for each task and method
    python -P benchmarks/costs.py mujoco-v4 --table           # what was measured before, as Markdown

Every cell of the suite trains for a moment with its own options and one thread, one after the other. The clock is CPU time, of
whole training after the first updates; evaluations are not part of it. The hours are

    seeds × steps / (steps per second) / 3600.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from critex.algorithms import algorithm_module
from critex.cli.train import train_config
from critex.run import Run
from critex.suite import SUITES, suite_named
from critex.suite.suite import Method, Suite, Task

RESULTS = Path(__file__).resolve().parent / "results" / "costs.json"
WARM = {"dqn": 300, "dsac": 600, "sac": 300, "td3": 300}  # steps before the clock starts; PPO: one rollout
QUIET = "--no-progress --no-tensorboard --checkpoint-every 0 --checkpoint-minutes 0 --eval-every 0 --seed 1"

Speeds = dict[str, dict[str, float]]
"""Environment steps per CPU second by task and method."""


def speed(suite: Suite, task: Task, method: Method, seconds: float) -> float:
    """Environment steps per CPU second of one cell."""
    warm = WARM.get(method.algorithm, 1)

    class Timed(Run):
        def steps(self, total: int, per_iteration: int = 1) -> Iterator[int]:
            began, first = 0.0, 0
            for step in super().steps(total, per_iteration):
                if step >= warm and not began:
                    began, first = time.process_time(), step
                yield step
                spent = time.process_time() - began
                if began and spent > seconds:
                    self.speed = (self.step - first) / spent
                    return

    with tempfile.TemporaryDirectory() as directory:
        flags = f"{QUIET} --out {directory}/run"
        if method.algorithm in WARM:
            flags += f" --learning-starts {warm // 2}"
        cfg = train_config(method.algorithm, [*suite.arguments(task, method)[1:], *flags.split()])
        with Timed.create(method.algorithm, cfg) as run:
            algorithm_module(method.algorithm).train(cfg, run)
    return run.speed


def table(suite: Suite, speeds: Speeds) -> str:
    """Steps per second, and the CPU hours of all seeds, as Markdown."""
    methods = [method.name for method in suite.methods]
    lines = [f"| task | {' | '.join(methods)} | CPU hours |", "|---" * (len(methods) + 2) + "|"]
    total = 0.0
    for task in suite.tasks:
        hours = sum(
            len(suite.seeds) * suite.steps(task, method) / speeds[task.name][method.name] / 3600
            for _, method in suite.cells(tasks=[task.name])
        )
        total += hours
        found = (speeds[task.name].get(method) for method in methods)
        cells = [task.name, *(f"{speed:.0f}" if speed else "" for speed in found), f"{hours:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, f"| all, {len(suite.seeds)} seeds |{' |' * len(methods)} {total:.0f} |"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="+", metavar="SUITE", choices=SUITES)
    parser.add_argument("--seconds", type=float, default=5.0, help="CPU seconds on the clock for each cell")
    parser.add_argument("--only", default="", help="measure these methods again, divided by commas")
    parser.add_argument(
        "--table", action="store_true", help="measure nothing, print what was measured before"
    )
    options = parser.parse_args()
    results: dict[str, Speeds] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.suites:
        suite = suite_named(name)
        only = options.only.split(",") if options.only else ()
        for task, method in () if options.table else suite.cells(only):
            measured = speed(suite, task, method, options.seconds)
            results.setdefault(name, {}).setdefault(task.name, {})[method.name] = round(measured, 1)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{task.name}, {method.name}: {measured:.0f} steps a second", file=sys.stderr)
        speeds = results.get(name, {})
        if missing := [
            f"{t.name} {m.name}" for t, m in suite.cells() if m.name not in speeds.get(t.name, {})
        ]:
            parser.exit(1, f"{name} has no table yet: not measured are {', '.join(missing)}\n")
        print(f"{name}, environment steps per CPU second\n\n{table(suite, speeds)}\n")


if __name__ == "__main__":
    main()
