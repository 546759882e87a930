"""What the SB3 callback costs: CPU time inside it, relative to everything else that SB3 does.

    python -P benchmarks/plugins.py --quick           # DQN, DQN with a CNN, SAC and PPO in two minutes
    python -P benchmarks/plugins.py                   # every algorithm, with cae and cae_plus
    python -P benchmarks/plugins.py --steps 2000 SAC DQN

One thread. The clock is CPU time. The share is (time in the callback) / (time of learn − time in the callback), with SB3's
defaults and after a warm-up, so learning has begun. The target is 5 %. The floor is what remains of the share if the
callback did nothing but the critic's pass up to φ and the step of the Gram matrix, for the steps of one collection phase.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from typing import Any

import gymnasium as gym
import torch
from sb3_contrib import QRDQN, TQC
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.envs import FakeImageEnv

from critex.explorers.elliptical import Elliptical
from critex.plugins.sb3 import ExplorerCallback


def images() -> gym.Env[Any, Any]:
    """Frames of Atari's size, without the emulator."""
    return FakeImageEnv(screen_height=84, screen_width=84, n_channels=4)


TASKS: dict[str, tuple[Any, Any]] = {
    "SAC": (SAC, "Pendulum-v1"),
    "TD3": (TD3, "Pendulum-v1"),
    "DDPG": (DDPG, "Pendulum-v1"),
    "TQC": (TQC, "Pendulum-v1"),
    "DQN": (DQN, "CartPole-v1"),
    "DQN-CNN": (DQN, images),
    "QRDQN": (QRDQN, "CartPole-v1"),
    "PPO": (PPO, "CartPole-v1"),
    "A2C": (A2C, "CartPole-v1"),
}
ON_POLICY = ("PPO", "A2C")
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

    def _build(self, model: Any) -> None:
        super()._build(model)
        step = self.training.step

        def timed() -> None:
            began = time.process_time()
            step()
            self.spent += time.process_time() - began

        self.training.step = timed  # type: ignore[method-assign]


def build(name: str, explorer: str) -> tuple[Any, Timed]:
    """A model with SB3's defaults that has begun to learn, and its callback."""
    algorithm, env = TASKS[name]
    off_policy: dict[str, Any] = {} if name in ON_POLICY else {"learning_starts": WARM_UP // 2}
    policy = "MlpPolicy"
    if env is images:
        policy, env = "CnnPolicy", images()
        off_policy["buffer_size"] = 2000
    model = algorithm(policy, env, seed=0, device="cpu", **off_policy)
    callback = Timed(explorer, alpha=0.2)
    model.learn(WARM_UP, callback=callback)
    callback.spent = 0.0
    return model, callback


def cost(name: str, explorer: str, steps: int) -> tuple[float, float, float]:
    """(µs per step in the callback, µs per step in SB3, µs per step of the floor)."""
    model, callback = build(name, explorer)
    warm = model.num_timesteps
    began = time.process_time()
    model.learn(steps, callback=callback, reset_num_timesteps=False)
    total, steps = time.process_time() - began, model.num_timesteps - warm
    spent = callback.spent
    return 1e6 * spent / steps, 1e6 * (total - spent) / steps, 1e6 * floor(callback)


def floor(callback: Timed, repeats: int = 200) -> float:
    """Seconds per step of the least that CAE can do: the critic's pass up to φ, and the step of the Gram matrix."""
    rollout, explorer = callback.rollout, callback.explorer
    assert rollout is not None and isinstance(explorer, Elliptical)
    with torch.no_grad():
        began = time.process_time()
        for _ in range(repeats):
            phi = explorer.phi(rollout.obs, rollout.action, rollout.next_obs)
            explorer.gram.observe_rollout(phi)
        return (time.process_time() - began) / (repeats * rollout.reward.numel())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("algorithms", nargs="*", default=list(TASKS))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--explorers", default="cae,cae_plus", help="separated by commas")
    parser.add_argument("--quick", action="store_true", help="DQN, DQN-CNN, SAC and PPO with cae, 300 steps")
    args = parser.parse_args()
    if args.quick:
        args.algorithms, args.explorers, args.steps = ["DQN", "DQN-CNN", "SAC", "PPO"], "cae", 300
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| algorithm | explorer | SB3, µs a step | callback, µs a step | share | floor of the share |")
    print("|---|---|---|---|---|---|")
    for name in args.algorithms:
        for explorer in args.explorers.split(","):
            steps = 4 * args.steps if name in ON_POLICY else args.steps
            spent, own, least = cost(name, explorer, steps)
            shares = f"{100 * spent / own:.1f} % | {100 * least / own:.1f} %"
            print(f"| {name} | {explorer} | {own:.0f} | {spent:.0f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
