"""DQN: targets in closed form, learning in seconds, the golden numbers, resume."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from critex.algorithms.dqn import DQN, Config
from critex.data import Batch
from critex.errors import UserError
from critex.explorers import CAEPlusConfig, EllipticalConfig
from tests.algorithms.conftest import metrics

OBS, ACTIONS = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
GOLDEN = Path(__file__).parents[1] / "golden" / "dqn.json"


def make(**options: Any) -> DQN:
    torch.manual_seed(0)
    cfg = Config(hidden=(16, 8), **options)
    return DQN(cfg, OBS, ACTIONS, torch.device("cpu"))


def batch(n: int = 6, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return Batch(
        obs=torch.randn(n, 4, generator=rng),
        action=torch.randint(3, (n,), generator=rng),
        reward=torch.randn(n, generator=rng),
        next_obs=torch.randn(n, 4, generator=rng),
        terminated=torch.rand(n, generator=rng) < 0.3,
        truncated=torch.rand(n, generator=rng) < 0.3,
        episode_start=torch.zeros(n, dtype=torch.bool),
        bonus=torch.rand(n, generator=rng),
    )


def expected_loss(agent: DQN, b: Batch, reward: torch.Tensor, next_value: torch.Tensor) -> float:
    target = reward + 0.99 * (~b.terminated).float() * next_value  # a truncated episode still bootstraps
    q = agent.q(b.obs)[torch.arange(len(b.action)), b.action]
    return (q - target).square().mean().item()


def test_evaluation_is_without_dropout() -> None:
    class Wet(torch.nn.Sequential):
        def embed(self, obs: torch.Tensor) -> torch.Tensor:
            return self[:-1](obs)

        @property
        def head(self) -> torch.nn.Module:
            return self[-1]

    def critic() -> torch.nn.Module:
        return Wet(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(32, 3))

    agent = DQN(Config(), OBS, ACTIONS, torch.device("cpu"), critic)
    obs = torch.randn(500, 4)
    assert torch.equal(agent.policy(obs), agent.policy(obs))
    assert agent.q.training and not torch.equal(agent.q(obs), agent.q(obs))  # training goes on with it


def test_target_with_the_bonus_in_the_reward() -> None:
    agent, b = make(explorer="cae", alpha=0.5), batch()
    with torch.no_grad():
        for p in agent.target.parameters():
            p.mul_(1.5)
    expected = expected_loss(agent, b, b.reward + 0.5 * b.bonus, agent.target(b.next_obs).amax(-1))
    assert agent.update(b)["loss"].item() == pytest.approx(expected, rel=1e-6)


def test_target_with_the_bonus_in_the_value() -> None:
    agent, b = make(explorer="cae", alpha=0.5, bonus_in="value"), batch()
    beta = agent.explorer.measure_actions(b.next_obs)[0].float()
    expected = expected_loss(agent, b, b.reward, (agent.target(b.next_obs) + 0.5 * beta).amax(-1))
    assert agent.update(b)["loss"].item() == pytest.approx(expected, rel=1e-6)


def test_double_q() -> None:
    agent, b = make(double_q=True, alpha=0.0), batch()
    with torch.no_grad():
        for p in agent.target.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    chosen = agent.q(b.next_obs).argmax(-1, keepdim=True)
    expected = expected_loss(agent, b, b.reward, agent.target(b.next_obs).gather(-1, chosen).squeeze(-1))
    assert agent.update(b)["loss"].item() == pytest.approx(expected, rel=1e-6)


def test_cae_plus_adds_its_loss_and_trains_u() -> None:
    agent, b = make(explorer="cae_plus"), batch()
    before = agent.explorer.U.weight.clone()
    extra = agent.explorer.loss(b).item()
    losses = agent.update(b)
    assert (losses["loss"] - losses["loss_bellman"]).item() == pytest.approx(extra, rel=1e-5)
    assert not torch.equal(agent.explorer.U.weight, before)


def test_acting_with_the_value_bonus_prefers_the_unseen_action() -> None:
    agent = make(explorer="cae", alpha=1e6, bonus_in="value", bonus=EllipticalConfig(embedding="block"))
    b = batch(1)
    agent.cfg.epsilon_end = 0.0
    for _ in range(3):
        b.action = agent.act(b.obs, step=10**9)
        agent.explorer.bonus(b)
    counts = agent.explorer.measure_actions(b.obs)[0]
    assert counts.max() - counts.min() < 1e-9  # each of the three was taken once


def test_epsilon_schedule() -> None:
    agent = make(steps=100)
    assert [agent.epsilon(s) for s in (0, 25, 50, 100)] == pytest.approx([1.0, 0.525, 0.05, 0.05])


def test_continuous_actions_are_refused(train: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="discrete actions"):
        train("dqn", env="Pendulum-v1", steps=10)


LEARNING: dict[str, Any] = {
    "learning_starts": 200, "train_every": 1, "target_every": 100, "learning_rate": 1e-3, "batch_size": 64,
}  # fmt: skip


def last_returns(path: Path, n: int) -> list[float]:
    return [line["return"] for line in metrics(path) if line["kind"] == "episode"][-n:]


def test_learns_cartpole(train: Callable[..., Path]) -> None:
    run = train("dqn", env="CartPole-v1", steps=8000, epsilon_fraction=0.2, seed=1, **LEARNING)
    returns = last_returns(run, 10)
    assert sum(returns) / 10 > 100, returns


def deepsea(episodes: int) -> dict[str, Any]:
    return LEARNING | {
        "env": "DeepSea-8-v0",
        "steps": 8 * episodes,
        "learning_starts": 64,
        "epsilon_start": 0.0,
        "epsilon_end": 0.0,
        "seed": 1,
        "target_every": 50,
        "batch_size": 128,
    }


@pytest.mark.parametrize(("strategy", "episodes"), [("ucb", 200), ("thompson", 400)])
def test_solves_deepsea(strategy: str, episodes: int, train: Callable[..., Path]) -> None:
    bonus = EllipticalConfig(strategy=strategy, embedding="block", phi_norm=10.0, rebuild_every=160)
    run = train("dqn", explorer="cae", bonus_in="value", alpha=0.05, bonus=bonus, **deepsea(episodes))
    assert sum(last_returns(run, 20)) / 20 > 0.9


def test_greedy_does_not_solve_deepsea(train: Callable[..., Path]) -> None:
    assert max(last_returns(train("dqn", **deepsea(400)), 400)) < 0.5


def test_golden() -> None:
    """50 updates on fixed synthetic data in float64: eight numbers that no refactoring may change."""
    torch.set_default_dtype(torch.float64)
    try:
        agent = make(explorer="cae_plus", alpha=0.3, bonus=CAEPlusConfig(u_dim=4, hidden=8))
        weights = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for p in [*agent.q.parameters(), *agent.explorer.parameters()]:
                p.copy_(0.3 * torch.randn(p.shape, generator=weights))
            agent.target.load_state_dict(agent.q.state_dict())
        bonuses, losses = [], []
        for i in range(50):
            b = batch(16, seed=i).map(lambda x: x.double() if x.is_floating_point() else x)
            b.bonus = torch.cat([agent.explorer.bonus(b.map(lambda x, j=j: x[j : j + 1])) for j in range(16)])
            bonuses.append(b.bonus.mean().item())
            losses.append(agent.update(b)["loss"].item())
        b = batch(64, seed=99).map(lambda x: x.double() if x.is_floating_point() else x)
        got = [
            losses[0], losses[-1], sum(losses), bonuses[0], bonuses[-1],
            agent.q(b.obs).sum().item(), agent.explorer.measure(b.obs, b.action)[0].sum().item(),
            agent.explorer.loss(b).item(),
        ]  # fmt: skip
    finally:
        torch.set_default_dtype(torch.float32)
    if os.environ.get("CRITEX_GOLDEN") == "write":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(got, indent=1) + "\n")
    assert got == pytest.approx(json.loads(GOLDEN.read_text()), rel=1e-6)


SCRIPT = "import sys; from critex.cli import main; main(sys.argv[1:])"
FLAGS = (
    "--env CartPole-v1 --steps 6000 --learning-starts 300 --log-every 100 --checkpoint-every 500 --buffer-size 2000 "
    "--explorer cae_plus --bonus.strategy thompson --bonus.rebuild-every 700 --bonus.embedding block --num-envs 3 "
    "--bonus-in value --eval-every 2000 --eval-episodes 2 --no-progress --no-tensorboard --seed 4"
).split()


def start(*args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def test_killed_and_resumed_is_as_if_never_killed(tmp_path: Path) -> None:
    """SIGKILL at random moments, again and again, until the run is through."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start("train", "dqn", *FLAGS, "--out", str(whole)).wait(120) == 0
    seed = random.SystemRandom().randrange(10**9)
    moments = random.Random(seed)
    process, kills = start("train", "dqn", *FLAGS, "--out", str(killed)), 0
    while not (killed / "config.toml").exists():
        time.sleep(0.01)
    for _ in range(4):
        try:
            process.wait(moments.uniform(1.0, 5.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            if (killed / "card.json").exists():  # the run was over, only the process was not
                break
            process = start("resume", str(killed))
    else:
        process.wait(120)
        assert process.returncode == 0, process.stderr.read() if process.stderr else ""
    assert kills, "the run was over before the first kill"
    assert metrics(killed) == metrics(whole), f"random seed {seed}"
    assert json.loads((killed / "card.json").read_text())["parameters_added"] > 0


def test_stops_when_an_evaluation_is_good_enough(train: Callable[..., Path]) -> None:
    options = LEARNING | {"env": "DeepSea-4-v0", "steps": 100_000, "learning_starts": 64, "eval_every": 40}
    run = train("dqn", eval_episodes=1, stop_return=0.9, epsilon_end=0.5, **options)
    lines = metrics(run)
    assert lines[-1]["kind"] == "eval" and lines[-1]["return"] >= 0.9 and lines[-1]["step"] < 100_000
