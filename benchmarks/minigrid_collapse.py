"""How do the features of CAE, CAE+ and E3B differ on MiniGrid? Eigenvalues, norm against λ, and when the bonus is paid.

    python benchmarks/minigrid_collapse.py            # 60,000 steps each, then docs/assets/minigrid_collapse.svg and .csv

PPO with one layer of 128 units and otherwise the preset `minigrid`, one seed; CAE+ with U of 32 rows, a quarter of φ, and
of 128. Called again, finished runs are kept and interrupted ones go on.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import torch

from critex.data import derive_seed
from critex.envs import Envs
from critex.explorers import Elliptical
from critex.run import read_metrics
from critex.suite import Job, launch
from critex.trained import load_trained

ROOT = Path(__file__).parents[1]
ENV, SEED, STEPS = "MiniGrid-MultiRoom-N4-S5-v1", 11, 60_000
METHODS = {
    "CAE": "--explorer cae",
    "CAE+, U of 32 rows": "--explorer cae_plus --bonus.u-dim 32 --bonus.hidden 64",
    "CAE+, U of 128 rows": "--explorer cae_plus --bonus.u-dim 128 --bonus.hidden 256",
    "E3B": "--explorer e3b",
}


def eigenvalues(run: Path, steps: int = 400) -> list[float]:
    """The largest eigenvalues of the covariance of φ, over steps of a trained agent that samples its actions."""
    trained = load_trained(run)
    explorer, agent, cfg = trained.explorer, trained.agent, trained.cfg
    assert isinstance(explorer, Elliptical)
    envs, rows = Envs(cfg.env, cfg.num_envs, derive_seed(SEED, "collapse")), []
    obs = envs.obs
    with torch.no_grad():
        for noise in agent.actor.noise(steps // cfg.num_envs, cfg.num_envs, generator=agent.generator):
            step, obs = envs.step(agent.act(obs, noise))
            rows.append(explorer.phi(agent.see(step.obs), step.action, None))
    envs.close()
    return explorer.summary(torch.cat(rows)).eigenvalues


def main() -> None:
    """Train, measure, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "minigrid-collapse")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--assets", type=Path, default=ROOT / "docs" / "assets")
    args = parser.parse_args()
    jobs = {}
    for name, own in METHODS.items():
        flags = f"ppo --env {ENV} --preset minigrid --hidden 128 {own} --seed {SEED} --steps {args.steps}"
        flags += " --threads 1 --no-tensorboard --log-every 2048"
        slug = "-".join(own.replace("--", "").split()[1::2])
        jobs[name] = Job(name, args.out / slug, tuple(flags.split()), args.steps)
    for failure in launch(list(jobs.values()), 1, "collapse"):
        raise SystemExit(str(failure))

    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.2))
    rows: list[tuple[object, ...]] = [("method", "quantity", "step or number", "value")]
    for name, style in zip(METHODS, ("o-", "s--", "D-.", "^:"), strict=True):
        values = eigenvalues(jobs[name].out)
        left.plot(range(1, len(values) + 1), values, style, label=name, markersize=4)
        rows += [(name, "eigenvalue", i, f"{value:.5g}") for i, value in enumerate(values, 1)]
        lines = [line for line in read_metrics(jobs[name].out) if line["kind"] == "train"]
        for axes, key in ((middle, "phi_norm"), (right, "bonus_early"), (None, "phi_rank")):
            series = [(line["step"], line[key]) for line in lines if key in line]
            if axes:
                axes.plot([step / 1000 for step, _ in series], [value for _, value in series], style[1:])
            rows += [(name, key, step, f"{value:.5g}") for step, value in series]
    left.set(title="eigenvalues of the covariance of φ", xlabel="number", yscale="log")
    middle.set(title="‖φ‖²/λ", xlabel="thousand steps", yscale="log")
    right.set(title="share of the bonus in the first ten steps", xlabel="thousand steps", ylim=(0, 1))
    for axes in (left, middle, right):
        axes.title.set_fontsize(9)
        axes.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="upper center", ncols=len(METHODS), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.92))
    args.assets.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.assets / "minigrid_collapse.svg", metadata={"Date": None})
    with (args.assets / "minigrid_collapse.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
