"""Which α for which explorer on MiniGrid? The same three tries for each, one seed, a quarter of a million steps.

    python benchmarks/minigrid.py tune      # called again, finished runs are kept and interrupted ones go on
    python benchmarks/minigrid.py table     # what came out

The best of the three is the explorer's α in the preset `minigrid`; `critex suite run minigrid` then runs other seeds.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from critex.report.runs import load_run
from critex.report.stats import final_score
from critex.suite import Job, launch

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "minigrid" / "tuning.csv"
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
                score = final_score(load_run(trial.out, []).returns)
                rows.append((explorer, str(alpha), str(SEED), str(STEPS), f"{score:.4f}"))
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with RESULTS.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    print(RESULTS.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
