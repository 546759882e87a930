"""The raw learning curves of a suite's runs as one small file, to be kept beside the code.

    python benchmarks/curves.py runs/minigrid results/minigrid
    python benchmarks/curves.py runs/mujoco-v4 results/mujoco-v4 --every 2000

Writes curves.csv: for each run one line per step at which episodes ended, or per so many steps, with their number and
the mean of their extrinsic returns; and runs.csv: for each run its last step, its final score (mean of the last 100 training
episodes), its seconds and its α. A suite that is scored by evaluations, or by another measure than the return, has its own
curves and scores: evaluations instead of episodes, that measure instead of the return.
"""

from __future__ import annotations

import argparse
import csv
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from critex.errors import UserError
from critex.results.cells import SCORES
from critex.results.runs import RunData, load_run
from critex.suite.manifest import MANIFEST, read_manifest
from critex.tables import table_named

COLUMNS = ("task", "method", "seed", "step", "episodes")


def curve(run: RunData, name: str, every: int) -> list[tuple[int, int, float]]:
    """(step, number of episodes, mean return) for each stretch of so many steps in which episodes ended."""
    if name not in run.series:
        return []
    pairs = [(-(-int(step) // every) * every, value) for step, value in zip(*run.series[name], strict=True)]
    groups = [(step, [r for _, r in group]) for step, group in groupby(pairs, key=itemgetter(0))]
    return [(step, len(returns), sum(returns) / len(returns)) for step, returns in groups]


def main() -> None:
    """Read the runs, write the two files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="directory of a suite: TASK/METHOD/seed-N inside")
    parser.add_argument("out", type=Path)
    parser.add_argument("--every", type=int, default=1, help="steps of one line")
    args = parser.parse_args()
    problems: list[str] = []
    score, measure, series = "episodes", "return", "return"
    if (args.runs / MANIFEST).exists():
        table = table_named(read_manifest(args.runs).suite)
        score, measure, series = table.score, table.measure, table.curve or series
    curves: list[tuple[Any, ...]] = []
    totals: list[dict[str, Any]] = []
    for path in sorted(p.parent for p in args.runs.glob("*/*/seed-*/config.toml")):
        task, method = path.parts[-3:-1]
        try:
            run = load_run(path, problems)
        except UserError as error:  # it has just begun
            problems.append(f"{error}; left out")
            continue
        rows = curve(run, series, args.every)
        curves += [(task, method, run.seed, step, n, f"{mean:.5g}") for step, n, mean in rows]
        totals.append(
            {
                "task": task,
                "method": method,
                "seed": run.seed,
                "steps": int(run.series[series][0][-1]) if rows else 0,
                "episodes": sum(n for _, n, _ in rows),
                "final_score": f"{SCORES[score](run, measure):.5g}",
                "seconds": round(run.card.get("seconds", 0)),
                "alpha": run.config.get("alpha"),
                "finished": bool(run.card),
            }
        )
    for problem in problems:
        print(problem)
    if not totals:
        parser.error(f"{args.runs} holds no runs TASK/METHOD/seed-N")
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "curves.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([(*COLUMNS, measure), *curves])
    with (args.out / "runs.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(totals[0]))
        writer.writeheader()
        writer.writerows(totals)
    print(f"{len(totals)} runs, {len(curves)} points: {args.out}")


if __name__ == "__main__":
    main()
