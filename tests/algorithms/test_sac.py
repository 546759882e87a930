"""SAC: target and densities in closed form, counts of updates and parameters, learning, golden numbers, resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import distributions as D

from critex.algorithms import sac
from critex.data import Replay
from critex.errors import UserError
from critex.explorers import EllipticalConfig
from critex.run import Checkpoints
from tests.algorithms import continuous
from tests.algorithms.continuous import (
    ACTIONS,
    CPU,
    MUJOCO,
    OBS,
    always,
    batch,
    double_precision,
    make,
    parameters,
    steps_taken,
    targets,
    targets_of,
    three_ends,
)


def test_target() -> None:
    """1 + 0.99·(min(2, 3) − 0.2·(−0.5)) = 3.079 where the episode goes on or was truncated, 1 where it terminated."""
    agent = make(sac, entropy_coef=0.2)
    agent.actor = lambda obs: (torch.zeros(len(obs), 2), torch.full((len(obs),), -0.5))
    agent.target1, agent.target2 = always(3.0), always(2.0)
    b = three_ends()
    assert targets_of(agent, b).tolist() == pytest.approx([3.079, 1.0, 3.079])


def test_the_bonus_is_in_the_target() -> None:
    plain, explored = make(sac), make(sac, explorer="cae", alpha=0.5)
    b = batch()
    torch.manual_seed(1)
    got = explored.update(b, 1)["loss"]
    b.reward, b.bonus = b.reward + 0.5 * b.bonus, torch.zeros(6)
    torch.manual_seed(1)
    assert torch.equal(got, plain.update(b, 1)["loss"])


def test_density_of_the_squashed_gaussian() -> None:
    """Against torch.distributions, on a range that is neither centred nor symmetric."""
    with double_precision():
        actor, obs = sac.Actor(sac.Config(hidden=(16,)), OBS, ACTIONS), torch.randn(200, 3)
        action, log_prob = actor(obs)
        mean, raw = actor.head(actor.body(actor.encode(obs))).chunk(2, dim=-1)
        log_std = -5 + 0.5 * 7 * (raw.tanh() + 1)
        affine = D.AffineTransform(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 4.0]))
        law = D.TransformedDistribution(D.Normal(mean, log_std.exp()), [D.TanhTransform(), affine])
        # The guard of the logarithm, 1e-6, shows where tanh comes near ±1.
        inside = ((action - affine.loc) / affine.scale).abs().amax(-1) < 0.99
        assert inside.sum() > 100
        torch.testing.assert_close(log_prob[inside], law.log_prob(action).sum(-1)[inside], rtol=0, atol=2e-4)
        assert (action >= torch.tensor([-1, -2])).all() and (action <= torch.tensor([1, 6])).all()
        torch.testing.assert_close(actor.squash(mean), affine(mean.tanh()))


def test_the_policy_carries_gradient() -> None:
    """With the noise held, the gradient of any mixture of a and log π by the mean's bias, against central differences."""
    with double_precision():
        actor, obs = sac.Actor(sac.Config(hidden=(16,)), OBS, ACTIONS), torch.randn(5, 3)
        weights = torch.randn(5, 2), torch.randn(5)

        def mixture() -> torch.Tensor:
            torch.manual_seed(1)
            action, log_prob = actor(obs)
            return (weights[0] * action).sum() + (weights[1] * log_prob).sum()

        (got,) = torch.autograd.grad(mixture(), actor.head.bias)
        wanted = []
        for nudge in 1e-6 * torch.eye(4):
            with torch.no_grad():
                values = [(actor.head.bias.add_(sign * nudge), mixture().item())[1] for sign in (1, -2)]
                actor.head.bias.add_(nudge)
            wanted.append((values[0] - values[1]) / 2e-6)
        torch.testing.assert_close(got, torch.tensor(wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("task", MUJOCO)
def test_parameters(task: str) -> None:
    o, a = MUJOCO[task]
    spaces = gym.spaces.Box(-np.inf, np.inf, (o,)), gym.spaces.Box(-1, 1, (a,))
    agent = make(sac, spaces, explorer="cae", hidden=(256, 256))
    assert sum(p.numel() for p in agent.q1.parameters()) == 256 * (o + a + 1) + 65_792 + 257
    assert sum(p.numel() for p in agent.actor.parameters()) == 256 * (o + 1) + 65_792 + 514 * a
    assert sum(p.numel() for p in agent.explorer.parameters()) == 0
    assert agent.explorer.gram.dim == 256


def test_phi_is_what_the_first_critic_is_linear_in() -> None:
    agent, b = make(sac), batch()
    phi = agent.embedding(b.obs, b.action)
    torch.testing.assert_close(agent.q1.head(phi).squeeze(-1), agent.q1(b.obs, b.action))


def test_an_even_step_has_one_critic_and_two_actor_updates() -> None:
    agent, b = make(sac), batch()
    agent.update(b, 6001)
    assert (steps_taken(agent.optimizer), steps_taken(agent.actor_optimizer)) == (1, 0)
    agent.update(b, 6002)
    assert (steps_taken(agent.optimizer), steps_taken(agent.actor_optimizer)) == (2, 2)
    assert steps_taken(agent.entropy_optimizer) == 2


@pytest.mark.parametrize("num_envs", [1, 3])
def test_one_update_per_environment_step(num_envs: int, train: Callable[..., Path]) -> None:
    """Steps 21 … 59 update the critics, the even ones of them the actor twice, however many envs there are."""
    options: dict[str, Any] = {"learning_starts": 20, "batch_size": 4, "hidden": (8,), "explorer": "cae"}
    run = train("sac", env="Pendulum-v1", steps=60, num_envs=num_envs, **options)
    parts = Checkpoints(run).newest()["parts"]
    assert int(parts["optimizer"]["state"][0]["step"]) == 39
    assert int(parts["agent"]["actor_optimizer"]["state"][0]["step"]) == 38
    assert (parts["replay"]["tail"]["bonus"] > 0).all()  # from the first random action on


def test_actor_updates_leave_the_critics_alone_and_targets_follow_slowly() -> None:
    agent, b = make(sac), batch()
    before = [p.detach().clone() for p in parameters(agent.q1, agent.q2)]
    old = [p.detach().clone() for p in targets(agent)]
    agent.update_actor(b.obs)
    assert all(torch.equal(p, q) for p, q in zip(parameters(agent.q1, agent.q2), before, strict=True))
    assert all(p.grad is None for p in parameters(agent.q1, agent.q2))
    agent.update(b, 1)
    for target, was, online in zip(targets(agent), old, parameters(agent.q1, agent.q2), strict=True):
        torch.testing.assert_close(target, was + 0.005 * (online - was))


def test_temperature() -> None:
    """Learned, it falls where the policy is more random than −dim(A) asks for; given, it stays."""
    agent, b = make(sac), batch()
    entropy = -agent.actor(b.obs)[1].mean().item()
    agent.update_actor(b.obs)
    change = agent.log_entropy_coef.item()
    assert entropy > agent.target_entropy == -2.0
    assert change == pytest.approx(-1e-3, rel=1e-3)  # Adam's first step is one step size long
    fixed = make(sac, entropy_coef=0.3)
    fixed.update(b, 0)
    assert fixed.log_entropy_coef.exp().item() == pytest.approx(0.3)


def test_random_actions_fill_the_range_before_learning_starts() -> None:
    agent = make(sac)
    actions = agent.act(torch.zeros(4000, 3), step=0)
    assert actions.mean(0).tolist() == pytest.approx([0.0, 2.0], abs=0.15)
    assert actions.amin(0).tolist() == pytest.approx([-1.0, -2.0], abs=0.05)
    assert actions.amax(0).tolist() == pytest.approx([1.0, 6.0], abs=0.05)


def test_cae_plus_trains_u_and_the_critic_through_it() -> None:
    agent, b = make(sac, explorer="cae_plus"), batch()
    before, extra = agent.explorer.U.weight.clone(), agent.explorer.loss(b).item()
    losses = agent.update(b, 1)
    assert (losses["loss"] - losses["loss_bellman"]).item() == pytest.approx(extra, rel=1e-5)
    assert not torch.equal(agent.explorer.U.weight, before)


def test_rebuild_measures_how_far_phi_drifted() -> None:
    agent = make(sac, explorer="cae", bonus=EllipticalConfig(rebuild_every=5))
    replay, explorer = Replay(100), agent.explorer
    for i in range(10):
        step = batch(1, seed=i)
        explorer.bonus(step)
        replay.add(step)
    explorer.refresh(replay)
    assert explorer.metrics()["phi_drift"] < 1e-6
    with torch.no_grad():
        agent.q1.body[-2].weight.mul_(2.0)
        agent.q1.body[-2].bias.mul_(2.0)  # φ doubles, so A = I + S becomes I + 4S
    seen = explorer.gram.matrix()[0]
    for i in range(5):
        explorer.bonus(batch(1, seed=i))
    added = explorer.gram.matrix()[0] - seen
    explorer.refresh(replay)
    eye = torch.eye(8, dtype=torch.float64)
    moved = torch.linalg.norm(3 * (seen - eye) - added) / torch.linalg.norm(seen + added)
    assert explorer.metrics()["phi_drift"] == pytest.approx(moved.item(), rel=1e-5)
    other = make(sac, explorer="cae", bonus=EllipticalConfig(rebuild_every=5)).explorer
    other.load_state_dict(explorer.state_dict())
    assert other.metrics()["phi_drift"] == explorer.metrics()["phi_drift"]


@pytest.mark.parametrize("algorithm", ["sac", "td3", "dsac"])
def test_what_cannot_work_is_refused(algorithm: str, train: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="continuous actions"):
        train(algorithm, "a", env="CartPole-v1", steps=10)
    with pytest.raises(UserError, match="bonus_in=reward"):
        train(algorithm, "b", env="Pendulum-v1", steps=10, explorer="cae", bonus_in="value")
    with pytest.raises(UserError, match="policy_delay is 0"):
        train(algorithm, "c", env="Pendulum-v1", policy_delay=0)
    with pytest.raises(
        UserError, match=r"run has 200, so it would end without one update; use --learning-starts 20 or"
    ):
        train(algorithm, "d", env="Pendulum-v1", steps=200)
    often = {"steps_per_update": 5000} if algorithm == "dsac" else {"updates_per_step": 0.0001}
    with pytest.raises(UserError, match="after 100 of 200 steps, and updates are too rare"):
        train(algorithm, "e", env="Pendulum-v1", steps=200, learning_starts=100, **often)
    for bound in np.inf, np.finfo(np.float32).max:
        with pytest.raises(UserError, match="bounded actions"):
            sac.SAC(sac.Config(), OBS, gym.spaces.Box(-bound, bound, (1,)), CPU)


@pytest.mark.parametrize("algorithm", ["sac", "td3", "dsac"])
def test_actions_may_be_of_double_precision(algorithm: str) -> None:
    from critex.algorithms import algorithm_module

    module, actions = algorithm_module(algorithm), gym.spaces.Box(-1, 1, (2,), np.float64)
    agent = module.Agent(module.Config(explorer="cae_plus", hidden=(8,)), OBS, actions, CPU)
    assert agent.policy(torch.zeros(5, *OBS.shape)).shape == (5, 2)


@pytest.mark.parametrize("algorithm", ["sac", "td3", "dsac"])
def test_a_checkpoint_plays_as_the_agent_did(algorithm: str, train: Callable[..., Path]) -> None:
    from critex.algorithms import algorithm_module

    run = train(algorithm, env="Pendulum-v1", steps=60, learning_starts=20, hidden=(8,), explorer="cae_plus")
    module = algorithm_module(algorithm)
    state = Checkpoints(run).newest()["parts"]["agent"]
    spaces = gym.spaces.Box(-8, 8, (3,)), gym.spaces.Box(-2, 2, (1,))
    agents = [module.Agent(module.Config(hidden=(8,)), *spaces, CPU) for _ in range(2)]
    obs = torch.randn(5, 3)
    assert not torch.equal(agents[0].policy(obs), agents[1].policy(obs))
    for agent in agents:
        agent.load_state_dict(state)
    assert torch.equal(agents[0].policy(obs), agents[1].policy(obs))
    assert all(torch.equal(p, q) for p, q in zip(agents[0]._targets, agents[1]._targets, strict=True))


def test_true_final_observation(train: Callable[..., Path]) -> None:
    continuous.check_true_final_observation("sac", sac, train)


def test_learns_the_identity(train: Callable[..., Path]) -> None:
    options: dict[str, Any] = {
        "actor_learning_rate": 3e-3,
        "critic_learning_rate": 3e-3,
        "explorer": "cae",
        "alpha": 0.01,
    }
    continuous.check_learns("sac", train, steps=900, entropy_coef=0.01, num_envs=2, **options)


def test_golden() -> None:
    continuous.check_golden("sac", sac, sac.SAC.update)


def test_resume_is_exact(train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    continuous.check_resume("sac", sac, train, monkeypatch)


def test_resume_is_exact_with_n_step_returns_and_another_update_ratio(
    train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    continuous.check_resume("sac", sac, train, monkeypatch, n_step=3, updates_per_step=0.7)
