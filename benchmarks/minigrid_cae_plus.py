"""Is CAE+ worse than CAE on MiniGrid, given as many tries? Tune on one seed, compare on others.

    python benchmarks/minigrid_cae_plus.py                 # called again, finished runs are kept and interrupted ones go on
    python benchmarks/minigrid_cae_plus.py --steps 2000 --seeds 21 --out runs/try      # does it work?

CAE, CAE+ and E3B get the same trunk (one layer of 512) and the same eight tries on seed 11: two values of α, the root of the
bonus or its square, φ as it is or of length 1. The best try of each, by its score, then runs on seeds that nobody was tuned
on. Both tables are written to results/minigrid-cae-plus.
"""

from __future__ import annotations

import argparse
import csv
from itertools import product
from pathlib import Path

from critex.results.runs import load_run
from critex.results.stats import final_score, summarise
from critex.suite import Job, launch

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "minigrid-cae-plus"
ENV, TUNING_SEED, SEEDS = "MiniGrid-MultiRoom-N4-S5-v1", 11, (21, 22, 23, 24, 25)
WIDTH = 512
OWN = {  # what a method needs besides the tries; U and the inverse dynamics as in the paper, E3B's φ as long as the critic's
    "cae": "",
    "cae_plus": "--bonus.u-dim 128 --bonus.hidden 256",
    "e3b": f"--bonus.width {WIDTH}",
}
TRIES = {
    f"{strategy}{'-unit' if unit else ''}-{alpha}": f"--alpha {alpha} --bonus.strategy {strategy} {unit}"
    for alpha, strategy, unit in product((0.003, 0.01), ("ucb_squared", "ucb"), ("", "--bonus.phi-norm 1.0"))
}


def job(explorer: str, attempt: str, seed: int, steps: int, out: Path) -> Job:
    """PPO with an explorer and the options of one try."""
    flags = (
        f"ppo --env {ENV} --preset minigrid --hidden {WIDTH} --explorer {explorer} {OWN[explorer]} {TRIES[attempt]} "
        f"--seed {seed} --steps {steps} --threads 1 --no-tensorboard --log-every 10000"
    )
    name = f"{explorer}, {attempt}, seed {seed}"
    return Job(name, out / explorer / attempt / f"seed-{seed}", tuple(flags.split()), steps)


def score(trial: Job) -> float:
    """The mean return of its last episodes."""
    if not trial.finished:
        raise SystemExit(f"{trial.out} has not finished; run this again")
    return final_score(load_run(trial.out, []).returns)


def run(jobs: list[Job], processes: int, title: str) -> None:
    """Run what is not finished yet."""
    for failure in launch(jobs, processes, title):
        print(failure)


def write(path: Path, rows: list[tuple[object, ...]]) -> None:
    """Write a table with the columns explorer, try, seed, steps and score."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("explorer", "try", "seed", "steps", "score"), *rows])


def main() -> None:
    """Tune, choose, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "minigrid-cae-plus")
    parser.add_argument("--results", type=Path, help="default: results/minigrid-cae-plus, for full runs only")
    parser.add_argument("--steps", type=int, default=250_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of the comparison")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    results = args.results or (RESULTS if args.steps == parser.get_default("steps") else args.out / "results")

    tries = {
        (e, attempt): job(e, attempt, TUNING_SEED, args.steps, args.out) for e, attempt in product(OWN, TRIES)
    }
    run(list(tries.values()), args.jobs, "tuning")
    scores = {key: score(trial) for key, trial in tries.items()}
    write(results / "tuning.csv", [(*key, TUNING_SEED, args.steps, f"{x:.4f}") for key, x in scores.items()])
    best = {e: max(TRIES, key=lambda attempt: scores[e, attempt]) for e in OWN}

    finals = {(e, seed): job(e, best[e], seed, args.steps, args.out) for e, seed in product(OWN, args.seeds)}
    run(list(finals.values()), args.jobs, "comparison")
    rows = [(e, best[e], seed, args.steps, f"{score(trial):.4f}") for (e, seed), trial in finals.items()]
    write(results / "comparison.csv", rows)
    for e in OWN:
        total = summarise([score(finals[e, seed]) for seed in args.seeds])
        print(f"{e:9} {best[e]:22} {total.mean:.3f} ± {total.std:.3f} ({total.n} seeds)")


if __name__ == "__main__":
    main()
