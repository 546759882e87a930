"""Does SB3 with the callback learn as critex's own algorithms do? Same tasks, same hyperparameters, three seeds.

    python -P benchmarks/plugins_learning.py pendulum deepsea minigrid
    python -P benchmarks/plugins_learning.py deepsea --seeds 1 --steps 4000

Each task is trained four times per seed: SB3, SB3 with the callback, critex, critex with CAE, whose bonus is in the reward
as in SB3. Differences that remain: SB3's DQN minimises a Huber loss and clips gradients at 10, ours a squared error; the
initial weights differ. Runs that results/plugins/<task>.csv already holds are not repeated.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import json
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from critex import envs
from critex.algorithms import algorithm_module
from critex.explorers import explorer_class
from critex.plugins.sb3 import ExplorerCallback
from critex.run import Run

MULTIROOM = "FlatMultiRoom-v0"


def flat_multiroom(**_: Any) -> gym.Env[Any, Any]:
    """Two small rooms, the view as a vector: both libraries then use the same multilayer perceptron."""
    return gym.wrappers.FlattenObservation(envs.make("MiniGrid-MultiRoom-N2-S4-v0"))


@dataclass
class Task:
    """One environment with the same hyperparameters in SB3's words and in ours."""

    env: str
    steps: int
    alpha: float
    algorithm: str
    sb3: Any
    sb3_options: dict[str, Any]
    ours: dict[str, Any]
    window: int  # last training episodes that count
    num_envs: int = 1
    bonus: dict[str, Any] = field(default_factory=dict)  # options of CAE


TASKS = {
    "pendulum": Task(
        "Pendulum-v1", 10_000, 0.2, "sac", SAC,
        {"learning_rate": 1e-3, "learning_starts": 500},
        {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "learning_starts": 500, "policy_delay": 1},
        window=10,
    ),
    "deepsea": Task(
        "DeepSea-8-v0", 8_000, 0.1, "dqn", DQN,
        {"learning_rate": 1e-3, "learning_starts": 100, "buffer_size": 10_000, "batch_size": 32, "train_freq": 1,
         "target_update_interval": 100, "exploration_fraction": 0.3, "policy_kwargs": {"net_arch": [64, 64]}},
        {"learning_rate": 1e-3, "learning_starts": 100, "buffer_size": 10_000, "batch_size": 32, "train_every": 1,
         "target_every": 100, "epsilon_fraction": 0.3, "hidden": (64, 64)},
        window=50,
    ),
    "minigrid": Task(
        MULTIROOM, 50_000, 0.003, "ppo", PPO,
        {"n_steps": 128, "batch_size": 128, "n_epochs": 4, "ent_coef": 0.01},
        {"rollout": 128, "minibatches": 8, "epochs": 4, "entropy_coef": 0.01, "anneal": False, "clip_value": False,
         "value_coef": 1.0, "normalize_obs": False, "normalize_reward": False, "bootstrap_truncated": True},
        window=100, num_envs=8,
        bonus={"scope": "episodic", "ridge": 0.1, "strategy": "ucb_squared", "zero_first": True},  # as preset minigrid
    ),
}  # fmt: skip


def with_sb3(task: Task, seed: int, explore: bool) -> list[float]:
    """Extrinsic returns of the training episodes."""
    returns: list[float] = []

    class Listed(Monitor):
        def step(self, action: Any) -> Any:
            result = super().step(action)
            if result[2] or result[3]:
                returns.append(float(sum(self.rewards)))
            return result

    vector = make_vec_env(lambda: Listed(envs.make(task.env)), task.num_envs, seed=seed)
    model = task.sb3("MlpPolicy", vector, seed=seed, device="cpu", **json.loads(json.dumps(task.sb3_options)))
    model.learn(
        task.steps, callback=ExplorerCallback("cae", alpha=task.alpha, **task.bonus) if explore else None
    )
    return returns


def with_critex(task: Task, seed: int, explore: bool) -> list[float]:
    """The same from a run of critex."""
    module = algorithm_module(task.algorithm)
    bonus = explorer_class("cae").Config(**task.bonus)
    explorer = {"explorer": "cae", "alpha": task.alpha, "bonus": bonus} if explore else {}
    with tempfile.TemporaryDirectory() as directory:
        cfg = module.Config(
            env=task.env, steps=task.steps, num_envs=task.num_envs, seed=seed, out=f"{directory}/run", progress=False,
            tensorboard=False, eval_every=0, **explorer, **task.ours,
        )  # fmt: skip
        with Run.create(task.algorithm, cfg) as run:
            module.train(cfg, run)
        lines = map(json.loads, (Path(directory) / "run" / "metrics.jsonl").read_text().splitlines())
        return [line["return"] for line in lines if line["kind"] == "episode"]


FIELDS = (
    "task",
    "trainer",
    "explorer",
    "alpha",
    "seed",
    "steps",
    "window",
    "mean_return",
    "episodes",
    "best_return",
)
METHODS = [("sb3", "none"), ("sb3", "cae"), ("critex", "none"), ("critex", "cae")]


def run(task: Task, trainer: str, explorer: str, seed: int) -> dict[str, Any]:
    """Train once: a row of the CSV file."""
    explore = explorer == "cae"
    returns = (with_sb3 if trainer == "sb3" else with_critex)(task, seed, explore)
    values = (
        task.env, trainer, explorer, task.alpha if explore else 0.0, seed, task.steps, task.window,
        round(float(np.mean(returns[-task.window :])), 5), len(returns), round(max(returns), 5),
    )  # fmt: skip
    return dict(zip(FIELDS, values, strict=True))


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of an earlier call, if there was one."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """One row per run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def table(rows: list[dict[str, Any]]) -> str:
    """A line per task and method: the mean return of the last training episodes, of each seed and over seeds."""
    lines = ["| task | trainer | explorer | return of each seed | mean ± std |", "|---|---|---|---|---|"]
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        key = (row["task"], row["trainer"], row["explorer"])
        groups.setdefault(key, []).append(float(row["mean_return"]))
    for key, scores in sorted(groups.items()):
        each = ", ".join(f"{score:.2f}" for score in scores)
        lines.append(f"| {' | '.join(key)} | {each} | {np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Train what the CSV file does not hold yet, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", choices=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="environment steps of each run, in place of the task's own")
    parser.add_argument("--out", type=Path, default=Path("results/plugins"), help="folder of the CSV files")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    gym.register(MULTIROOM, entry_point=flat_multiroom)
    for name in args.tasks:
        task, path = TASKS[name], args.out / f"{name}.csv"
        task.steps = args.steps or task.steps
        rows = read_csv(path)
        finished = {(r["trainer"], r["explorer"], int(r["seed"]), int(r["steps"])) for r in rows}
        for seed in range(1, args.seeds + 1):
            for trainer, explorer in METHODS:
                if (trainer, explorer, seed, task.steps) not in finished:
                    rows.append(run(task, trainer, explorer, seed))
                    write_csv(path, rows)  # so that an interrupted benchmark goes on from here
        print(table([row for row in rows if int(row["steps"]) == task.steps]), flush=True)


if __name__ == "__main__":
    main()
