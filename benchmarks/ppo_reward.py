"""Is CAE's bonus added before PPO's reward normaliser or after it? The reading whose scores are nearer to the paper's.

    critex suite run mujoco-ppo-reward --jobs 2 --out runs/mujoco-ppo-reward
    python benchmarks/curves.py runs/mujoco-ppo-reward results/mujoco-ppo-reward --every 5000
    python benchmarks/ppo_reward.py

The rule was fixed before the runs: the smaller sum over the tasks of |log(ours/the paper's)| wins.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

from critex.results.stats import summarise
from critex.suite.suites import MUJOCO
from critex.tables import paper_table

RUNS = Path(__file__).parents[1] / "results" / "mujoco-ppo-reward" / "runs.csv"
READINGS = {"ppo+cae": "before the normaliser", "ppo+cae-after": "after it"}


def main() -> None:
    """Print ours beside the paper's as Markdown, then the sum of each reading."""
    with RUNS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["finished"] == "True"]
    scores: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        scores.setdefault((row["task"], row["method"]), []).append(float(row["final_score"]))
    paper, distance = paper_table("mujoco-v4").scores, dict.fromkeys(READINGS, 0.0)
    print(
        "| task | steps | seeds | PPO | + CAE, before the normaliser | + CAE, after it | paper: PPO | + CAE |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for task in sorted({task for task, _ in scores}, key=MUJOCO.index):
        own = {method: scores[task, method] for method in ("ppo", *READINGS) if (task, method) in scores}
        if len(own) == 1 + len(READINGS):
            for method in READINGS:
                ratio = summarise(own[method]).mean / paper[task, "ppo+cae"][0]
                distance[method] += abs(math.log(ratio)) if ratio > 0 else math.inf
        steps = next(row["steps"] for row in rows if row["task"] == task)
        seeds = sorted({len(values) for values in own.values()})
        cells = [f"{int(steps):,}", "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))]
        cells += [shown(own.get(method, [])) for method in ("ppo", *READINGS)]
        cells += [f"{mean:,.0f} ± {std:,.0f}" for mean, std in (paper[task, "ppo"], paper[task, "ppo+cae"])]
        print(f"| {task} | {' | '.join(cells)} |")
    for method, name in READINGS.items():
        print(f"\nSum of |log(ours/the paper's)|, {name}: {distance[method]:.2f}")


def shown(values: list[float]) -> str:
    """Mean ± sample standard deviation."""
    if not values:
        return "–"
    total = summarise(values)
    return f"{total.mean:,.0f}" if total.n < 2 else f"{total.mean:,.0f} ± {total.std:,.0f}"


if __name__ == "__main__":
    main()
