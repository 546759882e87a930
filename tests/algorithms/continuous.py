"""What the tests of SAC, TD3 and DSAC-T share: toy environments, made-up batches, golden numbers, interruptions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from critex.algorithms import load_config
from critex.data import Batch, Replay, n_step_return
from critex.explorers import CAEPlusConfig
from critex.run import Checkpoints, Run, read_config
from tests.algorithms.conftest import metrics

OBS = gym.spaces.Box(-np.inf, np.inf, (3,))
ACTIONS = gym.spaces.Box(np.array([-1.0, -2.0], np.float32), np.array([1.0, 6.0], np.float32))
GOLDEN = Path(__file__).parents[1] / "golden"
MUJOCO = {
    "Swimmer": (8, 2), "Hopper": (11, 3), "Walker2d": (17, 6), "HalfCheetah": (17, 6), "Ant": (27, 8), "Humanoid": (376, 17)
}  # fmt: skip
CPU = torch.device("cpu")


class Identity(gym.Env[Any, Any]):
    """One step: see x, answer a, earn −(a − x)². A random answer earns −2/3 on average, the best 0."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.x, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.x, -float((action - self.x)[0] ** 2), True, False, {}


class Clock(gym.Env[Any, Any]):
    """Shows the time since its reset, and is truncated at time 3: a first observation is 0, a final one 3."""

    observation_space, action_space = gym.spaces.Box(0, 3, (1,)), gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, False, self.time == 3, {}


for env in (Identity, Clock):
    if f"{env.__name__}Test-v0" not in gym.registry:
        gym.register(f"{env.__name__}Test-v0", env)


def make(module: ModuleType, spaces: tuple[Any, Any] = (OBS, ACTIONS), **options: Any) -> Any:
    """An agent as `train` makes it."""
    torch.manual_seed(0)
    return module.Agent(module.Config(**{"hidden": (16, 8), **options}), *spaces, CPU)


def parameters(*networks: torch.nn.Module) -> list[Tensor]:
    return [p for network in networks for p in network.parameters()]


def targets(agent: Any) -> list[Tensor]:
    names = ("actor_target", "target1", "target2")
    return parameters(*(getattr(agent, name) for name in names if hasattr(agent, name)))


def targets_of(agent: Any, b: Batch) -> Any:
    """The target of single transitions with their own rewards."""
    _, *target = n_step_return(b, b.reward, agent.cfg.gamma)
    return (agent.targets if hasattr(agent, "targets") else agent.target)(*target)


def batch(n: int = 6, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return Batch(
        obs=torch.randn(n, 3, generator=rng),
        action=torch.rand(n, 2, generator=rng) * torch.tensor([2.0, 8.0]) - torch.tensor([1.0, 2.0]),
        reward=torch.randn(n, generator=rng),
        next_obs=torch.randn(n, 3, generator=rng),
        terminated=torch.rand(n, generator=rng) < 0.3,
        truncated=torch.rand(n, generator=rng) < 0.3,
        episode_start=torch.zeros(n, dtype=torch.bool),
        bonus=torch.rand(n, generator=rng),
    )


@contextmanager
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def three_ends() -> Batch:
    """Reward 1, and an episode that goes on, is terminated, is truncated."""
    b = batch(3)
    b.reward = torch.ones(3)
    b.terminated, b.truncated = torch.tensor([False, True, False]), torch.tensor([False, False, True])
    return b


def always(*values: float) -> Callable[..., Tensor]:
    """A network that returns these numbers for every row."""

    def network(obs: Tensor, *_: Tensor) -> Tensor:
        out = torch.tensor(values).expand(len(obs), -1)
        return out.squeeze(-1) if len(values) == 1 else out

    return network


def steps_taken(optimizer: torch.optim.Optimizer) -> int:
    """How many steps an optimiser has made."""
    return max((int(state["step"]) for state in optimizer.state.values()), default=0)


def check_golden(name: str, module: ModuleType, update: Callable[..., Any]) -> None:
    """50 updates, `update(agent, batch, i)`, on fixed synthetic data in float64 give the eight numbers of the file.

    `CRITEX_GOLDEN=write pytest …` writes the file anew; do so only where results are meant to change.
    """
    with double_precision():
        options = {"explorer": "cae_plus", "alpha": 0.3, "bonus": CAEPlusConfig(u_dim=4, hidden=8)}
        agent = make(module, **options)
        weights = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for p in parameters(agent.actor, agent.q1, agent.q2, agent.explorer):
                p.copy_(0.3 * torch.randn(p.shape, generator=weights))
            for target, source in (("target1", "q1"), ("target2", "q2"), ("actor_target", "actor")):
                if hasattr(agent, target):
                    getattr(agent, target).load_state_dict(getattr(agent, source).state_dict())
        bonuses, losses = [], []
        for i in range(50):
            b = batch(16, seed=i).map(lambda x: x.double() if x.is_floating_point() else x)
            b.bonus = torch.cat([agent.explorer.bonus(b.map(lambda x, j=j: x[j : j + 1])) for j in range(16)])
            bonuses.append(b.bonus.mean().item())
            losses.append(update(agent, b, i))
        b = batch(64, seed=99).map(lambda x: x.double() if x.is_floating_point() else x)
        with torch.no_grad():
            got = [
                losses[0]["loss"].item(), losses[-1]["loss"].item(), sum(line["loss"].item() for line in losses),
                losses[-1]["loss_actor"].item(), bonuses[-1], agent.q2(b.obs, b.action).sum().item(),
                agent.policy(b.obs).sum().item(), agent.explorer.measure(b.obs, b.action)[0].sum().item(),
            ]  # fmt: skip
    path = GOLDEN / f"{name}.json"
    if os.environ.get("CRITEX_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(got, indent=1) + "\n")
    assert got == pytest.approx(json.loads(path.read_text()), rel=1e-6)


class Stop(Exception):
    """The power cut of `check_resume`."""


def check_resume(
    name: str, module: ModuleType, train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, **more: Any
) -> None:
    """A run that dies in the middle of an iteration and is resumed writes what one that lives through does."""
    options = {
        "env": "Pendulum-v1", "num_envs": 2, "steps": 420, "learning_starts": 220, "hidden": (16, 16), "batch_size": 16,
        "log_every": 50, "checkpoint_every": 120, "eval_every": 200, "eval_episodes": 1, "seed": 3,
        "explorer": "cae_plus", "bonus": CAEPlusConfig(strategy="thompson", rebuild_every=150), **more,
    }  # fmt: skip
    whole = train(name, "whole", **options)
    add, killed = Replay.add, whole.parent / "killed"

    def add_until_dead(replay: Replay, transition: Any) -> None:
        if replay.total >= 330:
            raise Stop
        add(replay, transition)

    monkeypatch.setattr(Replay, "add", add_until_dead)
    with pytest.raises(Stop):
        train(name, "killed", **options)
    monkeypatch.undo()
    assert 0 < Checkpoints(killed).newest()["run"]["step"] < 330
    algorithm, data = read_config(killed)
    cfg = load_config(algorithm, data)
    with Run.open(killed, cfg) as run:
        module.train(cfg, run)
    lines = metrics(whole)
    assert metrics(killed) == lines
    assert {line["kind"] for line in lines} == {"episode", "train", "eval"}
    assert any("phi_drift" in line for line in lines)
    first, second = (Checkpoints(path).newest()["parts"]["agent"]["actor"] for path in (whole, killed))
    assert all(torch.equal(first[key], second[key]) for key in first)


def check_true_final_observation(name: str, module: ModuleType, train: Callable[..., Path]) -> None:
    """Every batch holds the observation an episode ended with, not the one that the next began with."""
    seen: list[Batch] = []
    update = module.Agent.update

    def spy(agent: Any, b: Batch, *rest: Any) -> Any:
        seen.append(b)
        return update(agent, b, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.Agent, "update", spy)
        train(name, env="ClockTest-v0", steps=90, learning_starts=40, num_envs=2, batch_size=16, hidden=(8,))
    rows = Batch(**{k: torch.cat([getattr(b, k) for b in seen]) for k in seen[0].asdict() if k != "info"})
    assert torch.equal(rows.next_obs, rows.obs + 1)
    assert torch.equal(rows.truncated, rows.next_obs[:, 0] == 3) and rows.truncated.any()
    assert not rows.terminated.any()


def check_learns(name: str, train: Callable[..., Path], **options: Any) -> None:
    """The identity task, to a twentieth of the error of random answers."""
    common = {"hidden": (32, 32), "batch_size": 64, "learning_starts": 100, "seed": 1}
    run = train(
        name, env="IdentityTest-v0", eval_every=options["steps"], eval_episodes=50, **common, **options
    )
    evaluation = [line for line in metrics(run) if line["kind"] == "eval"][-1]
    assert evaluation["return"] > -0.035, evaluation["return"]
