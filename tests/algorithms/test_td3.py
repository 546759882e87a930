"""TD3: target in closed form, counts of updates and parameters, learning, golden numbers, resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from critex.algorithms import td3
from critex.networks import minimise
from critex.run import Checkpoints
from tests.algorithms import continuous
from tests.algorithms.continuous import (
    MUJOCO,
    always,
    batch,
    make,
    parameters,
    steps_taken,
    targets,
    targets_of,
    three_ends,
)


def test_target() -> None:
    """1 + 0.99·min(2, 3) = 2.98 where the episode goes on or was truncated, 1 where it terminated."""
    agent = make(td3)
    agent.target1, agent.target2 = always(2.0), always(3.0)
    b = three_ends()
    assert targets_of(agent, b).tolist() == pytest.approx([2.98, 1.0, 2.98])


def test_target_noise_is_cut_off_and_so_is_the_action() -> None:
    """With enormous noise the target's action moves by ± ½ of the half range, and stays inside it.

    The ranges are [−1, 1] and [−2, 6]; from (0.8, 2) the action goes to 1 or 0.3, and to 4 or 0.
    """
    agent, b = make(td3, target_noise=1e9, gamma=1.0), batch(200)
    b.reward, b.terminated = torch.zeros(200), torch.zeros(200, dtype=torch.bool)
    agent.actor_target = always(0.8, 2.0)
    for i, values in enumerate(({0.3, 1.0}, {0.0, 4.0})):
        agent.target1 = agent.target2 = lambda obs, action, i=i: action[:, i]
        assert {round(x, 5) for x in targets_of(agent, b).tolist()} == values


def test_exploration_noise() -> None:
    agent = make(td3, learning_starts=10)
    agent.actor.head.weight.data.zero_()
    agent.actor.head.bias.data.zero_()  # μ(s) = (0, 2) in ranges of half length 1 and 4
    actions = agent.act(torch.zeros(4000, 3), step=10)
    assert actions.mean(0).tolist() == pytest.approx([0.0, 2.0], abs=0.03)
    assert actions.std(0).tolist() == pytest.approx([0.1, 0.4], rel=0.05)
    uniform = agent.act(torch.zeros(4000, 3), step=9)
    assert uniform.std(0).tolist() == pytest.approx([2 / 12**0.5, 8 / 12**0.5], rel=0.05)


@pytest.mark.parametrize("task", MUJOCO)
def test_parameters(task: str) -> None:
    o, a = MUJOCO[task]
    spaces = gym.spaces.Box(-np.inf, np.inf, (o,)), gym.spaces.Box(-1, 1, (a,))
    agent = make(td3, spaces, hidden=(256, 256))
    assert sum(p.numel() for p in agent.q1.parameters()) == 256 * (o + a + 1) + 65_792 + 257
    assert sum(p.numel() for p in agent.actor.parameters()) == 256 * (o + 1) + 65_792 + 257 * a


def test_actor_and_targets_move_at_even_steps() -> None:
    agent, b = make(td3), batch()
    before = [p.detach().clone() for p in targets(agent)]
    agent.update(b, 26_001)
    assert (steps_taken(agent.optimizer), steps_taken(agent.actor_optimizer)) == (1, 0)
    assert all(torch.equal(p, q) for p, q in zip(targets(agent), before, strict=True))
    agent.update(b, 26_002)
    assert (steps_taken(agent.optimizer), steps_taken(agent.actor_optimizer)) == (2, 1)
    for target, old, online in zip(
        targets(agent), before, parameters(agent.actor, agent.q1, agent.q2), strict=True
    ):
        torch.testing.assert_close(target, old + 0.005 * (online - old))


@pytest.mark.parametrize("num_envs", [1, 3])
def test_one_update_per_environment_step(num_envs: int, train: Callable[..., Path]) -> None:
    """Steps 21 … 59 update the critics, the even ones of them the actor, however many envs there are."""
    options: dict[str, Any] = {"learning_starts": 20, "batch_size": 4, "hidden": (8,)}
    run = train("td3", env="Pendulum-v1", steps=60, num_envs=num_envs, **options)
    parts = Checkpoints(run).newest()["parts"]
    assert int(parts["optimizer"]["state"][0]["step"]) == 39
    assert int(parts["agent"]["actor_optimizer"]["state"][0]["step"]) == 19


def test_the_actor_climbs_the_first_critic() -> None:
    agent, b = make(td3, learning_rate=0.01), batch(64)
    before = agent.q1(b.obs, agent.actor(b.obs)).mean().item()
    for _ in range(30):
        minimise(agent.actor_loss(b.obs), agent.actor_optimizer)
    assert agent.q1(b.obs, agent.actor(b.obs)).mean().item() > before
    assert -agent.actor_loss(b.obs).item() == pytest.approx(agent.q1(b.obs, agent.actor(b.obs)).mean().item())


def test_true_final_observation(train: Callable[..., Path]) -> None:
    continuous.check_true_final_observation("td3", td3, train)


def test_learns_the_identity(train: Callable[..., Path]) -> None:
    continuous.check_learns(
        "td3", train, steps=900, learning_rate=3e-3, explorer="cae", alpha=0.01, num_envs=2
    )


def test_golden() -> None:
    continuous.check_golden("td3", td3, td3.TD3.update)


def test_resume_is_exact(train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    continuous.check_resume("td3", td3, train, monkeypatch)
