"""What the SB3 callback costs: CPU time inside it, relative to everything else that SB3 does.

    python -P benchmarks/plugins.py                   # every algorithm, a few CPU seconds each
    python -P benchmarks/plugins.py --steps 2000 SAC DQN

One thread. The clock is CPU time. The cost is (time in the callback) / (time of learn − time in the callback), after a
warm-up, so learning has begun. The target is 5 %.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from typing import Any

import torch
from sb3_contrib import QRDQN, TQC
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3

from critex.plugins.sb3 import ExplorerCallback

TASKS: dict[str, tuple[Any, str]] = {
    "SAC": (SAC, "Pendulum-v1"),
    "TD3": (TD3, "Pendulum-v1"),
    "DDPG": (DDPG, "Pendulum-v1"),
    "TQC": (TQC, "Pendulum-v1"),
    "DQN": (DQN, "CartPole-v1"),
    "QRDQN": (QRDQN, "CartPole-v1"),
    "PPO": (PPO, "CartPole-v1"),
    "A2C": (A2C, "CartPole-v1"),
}
WARM_UP = 200


class Timed(ExplorerCallback):
    """The callback with a clock around everything that SB3 calls."""

    spent = 0.0

    def on_step(self) -> bool:
        began = time.process_time()
        result = super().on_step()
        self.spent += time.process_time() - began
        return bool(result)

    def on_rollout_end(self) -> None:
        began = time.process_time()
        super().on_rollout_end()
        self.spent += time.process_time() - began

    def _learn(self, *args: Any) -> None:
        began = time.process_time()
        super()._learn(*args)
        self.spent += time.process_time() - began


def cost(name: str, explorer: str, steps: int) -> tuple[float, float]:
    """(microseconds per step in the callback, its share of SB3's own time)."""
    algorithm, env = TASKS[name]
    off_policy = {} if name in ("PPO", "A2C") else {"learning_starts": WARM_UP // 2}
    model = algorithm("MlpPolicy", env, seed=0, device="cpu", **off_policy)
    callback = Timed(explorer, alpha=0.2)
    model.learn(WARM_UP, callback=callback)
    warm, callback.spent = model.num_timesteps, 0.0
    began = time.process_time()
    model.learn(steps, callback=callback, reset_num_timesteps=False)
    total = time.process_time() - began
    return 1e6 * callback.spent / (model.num_timesteps - warm), callback.spent / (total - callback.spent)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("algorithms", nargs="*", default=list(TASKS))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--explorers", default="cae,cae_plus", help="separated by commas")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| algorithm | explorer | µs a step | share of SB3's own time |\n|---|---|---|---|")
    for name in args.algorithms:
        for explorer in args.explorers.split(","):
            micros, share = cost(name, explorer, 4 * args.steps if name in ("PPO", "A2C") else args.steps)
            print(f"| {name} | {explorer} | {micros:.0f} | {100 * share:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
