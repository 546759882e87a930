"""Which α for which explorer on MiniGrid? The same three tries for each, one seed, a quarter of a million steps.

python benchmarks/minigrid_alpha.py tune      # called again, finished runs are kept and interrupted ones go on
critex suite run minigrid               # other seeds, with the best of the three, which the preset holds
python benchmarks/curves.py runs/minigrid results/minigrid --every 2048
python benchmarks/curves.py results/minigrid --draw docs/assets/minigrid.svg
python benchmarks/minigrid_alpha.py table     # what came out, from results/minigrid
"""

from __future__ import annotations

import argparse
import csv
from collections import deque
from pathlib import Path

from critex.results.runs import load_run
from critex.results.stats import final_score, summarise
from critex.suite import Job, launch

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "minigrid"
TUNING = RESULTS / "tuning.csv"
SOLVED, EPISODES = 0.5, 100
ENV, STEPS, SEED = "MiniGrid-MultiRoom-N4-S5-v1", 250_000, 11
SCALED = (0.003, 0.01, 0.03)
ALPHAS = {
    **dict.fromkeys(("cae", "cae_plus", "e3b", "ride", "noveld"), SCALED),
    "rnd": (0.03, 0.1, 0.3),  # unscaled: these bonuses are smaller
    "icm": (0.3, 1.0, 3.0),
}


def job(explorer: str, alpha: float, out: Path) -> Job:
    """PPO with an explorer at a trial's α."""
    flags = f"ppo --env {ENV} --preset minigrid --explorer {explorer} --alpha {alpha} --seed {SEED} --steps {STEPS}"
    train = (*flags.split(), *"--threads 1 --no-tensorboard --log-every 10000".split())
    return Job(f"{explorer}, α = {alpha}", out / f"{explorer}-{alpha}", train, STEPS)


def read(name: str) -> list[dict[str, str]]:
    """The rows of one of the results' files."""
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def solved_at(rows: list[dict[str, str]]) -> int | None:
    """The first step at which the last 100 episodes returned 0.5 on average."""
    window: deque[tuple[int, float]] = deque()
    for row in rows:
        window.append((int(row["episodes"]), float(row["return"])))
        while sum(n for n, _ in window) - window[0][0] >= EPISODES:
            window.popleft()
        count = sum(n for n, _ in window)
        if count >= EPISODES and sum(n * r for n, r in window) / count >= SOLVED:
            return int(row["step"])
    return None


def table() -> str:
    """A line for each task and method, as Markdown: its score over the seeds, and when each seed was halfway."""
    runs, curves = read("runs.csv"), read("curves.csv")
    lines = [
        "| task | method | score, mean ± std (seeds) | each seed | steps until 100 episodes return 0.5 |",
        "|---|---|---|---|---|",
    ]
    for cell in dict.fromkeys((row["task"], row["method"]) for row in runs):
        own = [row for row in runs if (row["task"], row["method"]) == cell]
        scores = [float(row["final_score"]) for row in own]
        total = summarise(scores)
        steps = [
            solved_at([c for c in curves if (c["task"], c["method"], c["seed"]) == (*cell, row["seed"])])
            for row in own
        ]
        each = ", ".join(f"{score:.2f}" for score in scores)
        when = ", ".join("never" if step is None else f"{step:,}" for step in steps)
        spread = f" ± {total.std:.3f}" if total.n > 1 else ""
        shown = f"{total.mean:.3f}{spread} ({total.n})"
        lines.append(f"| {' | '.join(cell)} | {shown} | {each} | {when} |")
    return "\n".join(lines)


def main() -> None:
    """Run the trials, or show them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["tune", "table"])
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "minigrid-tuning")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    jobs = {(e, a): job(e, a, args.out) for e, alphas in ALPHAS.items() for a in alphas}
    if args.what == "tune":
        for failure in launch(list(jobs.values()), args.jobs, "tuning"):
            print(failure)
        rows = [("explorer", "alpha", "seed", "steps", "final_score")]
        for (explorer, alpha), trial in sorted(jobs.items()):
            if trial.finished:
                score = final_score(load_run(trial.out, []).values("return"))
                rows.append((explorer, str(alpha), str(SEED), str(STEPS), f"{score:.4f}"))
        RESULTS.mkdir(parents=True, exist_ok=True)
        with TUNING.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        print(TUNING.read_text(encoding="utf-8"), end="")
    else:
        print(table())


if __name__ == "__main__":
    main()
