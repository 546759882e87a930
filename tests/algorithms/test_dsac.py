"""DSAC-T: targets and both losses on made-up numbers, σ̄, counts, learning, golden numbers, resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import distributions as D

from critex.algorithms import dsac
from critex.errors import UserError
from critex.explorers import EllipticalConfig
from critex.run import Checkpoints
from tests.algorithms import continuous
from tests.algorithms.continuous import (
    ACTIONS,
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

SHAPE = MUJOCO | {"Ant": (111, 8)}  # of the -v3 tasks
PRINTED = {
    "Swimmer": (134_914, 134_916), "Hopper": (135_938, 136_198), "Walker2d": (138_242, 139_276),
    "HalfCheetah": (138_242, 139_276), "Ant": (162_818, 164_368), "Humanoid": (232_962, 236_834),
}  # fmt: skip


def raw(std: float) -> float:
    """softplus(raw) = std."""
    return float(np.log(np.expm1(std)))


def test_targets() -> None:
    """The second critic has the smaller mean 2 and σ = 0.5: y_q = 1 + 0.99·(2 − 0.2·(−0.5)), y_z = y_q + 0.99·0.5·z."""
    agent = make(dsac, entropy_coef=0.2)
    agent.actor_target = lambda obs: (torch.zeros(len(obs), 2), torch.full((len(obs),), -0.5))
    agent.target1, agent.target2 = always(3.0, raw(7.0)), always(2.0, raw(0.5))
    b = three_ends()
    torch.manual_seed(3)
    y_mean, y_sample = targets_of(agent, b)
    torch.manual_seed(3)
    z = torch.randn(3).clamp(-3, 3)
    assert y_mean.tolist() == pytest.approx([3.079, 1.0, 3.079])
    assert (y_sample - y_mean).tolist() == pytest.approx(
        (0.99 * 0.5 * z * torch.tensor([1, 0, 1])).tolist(), rel=1e-4
    )


def test_the_sample_of_the_target_is_bounded() -> None:
    agent, b = make(dsac, entropy_coef=0.0, gamma=1.0), batch(20_000)
    b.terminated[:] = False
    agent.target1, agent.target2 = always(1.0, raw(2.0)), always(5.0, raw(9.0))
    b.reward = torch.zeros(20_000)
    y_mean, y_sample = targets_of(agent, b)
    assert (y_sample - y_mean).abs().max().item() == pytest.approx(6.0)  # three times σ of the smaller one
    assert (y_sample - y_mean).std().item() == pytest.approx(2.0, rel=0.03)


def gradients(loss: Callable[..., torch.Tensor], *numbers: float) -> tuple[float, float, float]:
    q, std, *rest = (torch.tensor(float(x), requires_grad=True) for x in numbers)
    value = loss(q, std, *rest)
    value.backward()
    assert q.grad is not None and std.grad is not None
    return value.item(), q.grad.item(), std.grad.item()


def test_gaussian_loss() -> None:
    """Q = 1, σ = 1, y_q = 3, y_z = 10 clipped to 1 + 3σ̄ = 4 with σ̄ = 1, ε = 0.1.

    The slopes are (3 − 1)/1.1 and (9 − 1)/1.1 and the weight is 1.1, so L = −(2·1 + 8·1), ∂Q = −2, ∂σ = −8.
    """
    assert gradients(dsac.gaussian_loss, 1, 1, 3, 10, 1) == pytest.approx((-10, -2, -8))
    # σ̄ = 2: nothing is clipped at 5, and the weight is 4.1; σ = 2: the slopes are 2/4.1 and (16 − 4)/8.1
    expected = (-4.1 * (2 / 4.1 + 24 / 8.1), -2, -4.1 * 12 / 8.1)
    assert gradients(dsac.gaussian_loss, 1, 2, 3, 5, 2) == pytest.approx(expected)


def test_huber_loss() -> None:
    """The same numbers: w = 1/1.1, H(1, 3) = 2, H(1, 4) = 4.5, so L = w·(2 + (1 − 4.5)/1.1)."""
    w = 1 / 1.1
    expected = (w * (2 - 3.5 / 1.1), w * -2, w * -3.5 / 1.1)
    assert gradients(dsac.huber_loss, 1, 1, 3, 10, 1) == pytest.approx(expected)
    # 100 away from y_q it is linear: H = 50·(100 − 25); σ̄²/(σ² + ε) = 100/1.1 is cut to 10; H(0, 30) = 450
    expected = (10 * (3750 + (1 - 450) / 1.1), 10 * -50, 10 * (1 - 450) / 1.1)
    assert gradients(dsac.huber_loss, 0, 1, 100, 100, 10) == pytest.approx(expected)


@pytest.mark.parametrize("loss", ["gaussian", "huber"])
def test_both_losses_fit_a_distribution(loss: str) -> None:
    """Regression on samples of N(2, 1): the gaussian loss finds σ = 1, the later one √½ of it (its H has the ½)."""
    torch.manual_seed(0)
    out = torch.tensor([0.0, 1.0], requires_grad=True)
    optimizer = torch.optim.Adam([out], lr=0.02)
    for _ in range(1000):
        q, std = dsac.distribution(out.expand(256, 2))
        value = dsac.LOSSES[loss](q, std, torch.full((256,), 2.0), 2 + torch.randn(256), std.detach().mean())
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    q, std = dsac.distribution(out)
    expected = 1.0 if loss == "gaussian" else 0.5**0.5
    assert (q.item(), std.item()) == pytest.approx((2.0, expected), abs=0.06)


def test_running_sigma() -> None:
    """σ̄ is the first batch's mean, then moves by 0.005 of the way, and is updated before it is used."""
    agent, expected = make(dsac), torch.zeros(2)
    for i in range(3):
        b = batch(seed=i)
        with torch.no_grad():
            stds = [dsac.distribution(q(b.obs, b.action))[1].mean() for q in (agent.q1, agent.q2)]
        expected = torch.stack(stds) if i == 0 else 0.995 * expected + 0.005 * torch.stack(stds)
        agent.update(b)
        torch.testing.assert_close(agent.mean_std, expected)


def test_density_of_the_squashed_gaussian() -> None:
    with double_precision():
        actor, obs = dsac.Actor(dsac.Config(hidden=(16,)), OBS, ACTIONS), torch.randn(200, 3)
        action, log_prob = actor(obs)
        mean, log_std = actor.head(actor.body(actor.encode(obs))).chunk(2, dim=-1)
        affine = D.AffineTransform(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 4.0]))
        law = D.TransformedDistribution(
            D.Normal(mean, log_std.clamp(-20, 0.5).exp()), [D.TanhTransform(), affine]
        )
        # The guard of the logarithm, 1e-6, shows where tanh comes near ±1.
        inside = ((action - affine.loc) / affine.scale).abs().amax(-1) < 0.99
        assert inside.sum() > 100
        torch.testing.assert_close(log_prob[inside], law.log_prob(action).sum(-1)[inside], rtol=0, atol=2e-4)
        torch.testing.assert_close(actor.squash(mean), affine(mean.tanh()))


@pytest.mark.parametrize("task", MUJOCO)
def test_parameters(task: str) -> None:
    o, a = SHAPE[task]
    spaces = gym.spaces.Box(-np.inf, np.inf, (o,)), gym.spaces.Box(-1, 1, (a,))
    agent = make(dsac, spaces, explorer="cae", hidden=(256, 256, 256))
    counts = tuple(sum(p.numel() for p in net.parameters()) for net in (agent.q1, agent.actor))
    assert counts == (256 * (o + a + 1) + 131_584 + 514, 256 * (o + 1) + 131_584 + 514 * a) == PRINTED[task]
    assert agent.explorer.gram.dim == 256


def test_actor_and_targets_move_at_even_iterations() -> None:
    """Iteration 0 is one of them; k iterations make ⌈k/2⌉ updates of the targets."""
    agent, b, moves = make(dsac), batch(), 0
    for k in range(1, 6):
        before = [p.detach().clone() for p in targets(agent)]
        agent.update(b)
        moves += not all(torch.equal(p, q) for p, q in zip(targets(agent), before, strict=True))
        assert (
            moves
            == steps_taken(agent.actor_optimizer)
            == steps_taken(agent.entropy_optimizer)
            == (k + 1) // 2
        )
        assert steps_taken(agent.optimizer) == agent.updates == k


def test_the_actor_learns_from_the_critics_before_their_step() -> None:
    agent, twin, b = make(dsac), make(dsac), batch()
    torch.manual_seed(1)
    agent.update(b)
    torch.manual_seed(1)
    targets_of(twin, b)  # draws what the update drew
    twin.update_actor(b.obs)
    assert all(
        torch.equal(p, q) for p, q in zip(parameters(agent.actor), parameters(twin.actor), strict=True)
    )
    assert twin.log_entropy_coef.item() == pytest.approx(1 - 3e-4)  # from log e, one step of Adam


@pytest.mark.parametrize("num_envs", [1, 3, 64])
def test_twenty_environment_steps_an_iteration(num_envs: int, train: Callable[..., Path]) -> None:
    """k iterations need 100 + 20k steps."""
    options: dict[str, Any] = {"learning_starts": 100, "batch_size": 4, "hidden": (8,), "explorer": "cae"}
    run = train("dsac", env="Pendulum-v1", steps=200, num_envs=num_envs, **options)
    state = Checkpoints(run).newest()
    updates, steps = state["parts"]["agent"]["updates"], state["run"]["step"]
    assert 200 <= steps < 200 + max(num_envs, 21)
    assert state["parts"]["replay"]["total"] == steps
    assert updates == (steps - 100) // 20 >= 5
    assert (state["parts"]["replay"]["tail"]["bonus"] > 0).all()


def test_the_bonus_of_a_chunk_is_that_of_its_steps(train: Callable[..., Path]) -> None:
    """Before anything is learned, chunks of 20 and of 1 step give the same bonuses."""
    options: dict[str, Any] = {
        "learning_starts": 60,
        "hidden": (8,),
        "explorer": "cae",
        "steps": 80,
        "num_envs": 2,
    }
    bonus = EllipticalConfig(scaling="none")
    runs = [
        train("dsac", f"run{k}", env="Pendulum-v1", steps_per_update=k, bonus=bonus, **options)
        for k in (20, 1)
    ]
    first, second = (Checkpoints(run).newest()["parts"]["replay"]["tail"] for run in runs)
    torch.testing.assert_close(first["bonus"][:60], second["bonus"][:60], rtol=1e-5, atol=0)
    assert torch.equal(first["obs"][:60], second["obs"][:60])


def test_true_final_observation(train: Callable[..., Path]) -> None:
    continuous.check_true_final_observation("dsac", dsac, train)


@pytest.mark.parametrize("loss", ["gaussian", "huber"])
def test_learns_the_identity(loss: str, train: Callable[..., Path]) -> None:
    options: dict[str, Any] = {"explorer": "cae", "alpha": 0.01, "entropy_coef": 0.01, "critic_loss": loss}
    continuous.check_learns(
        "dsac", train, steps=1000, steps_per_update=1, learning_rate=3e-3, num_envs=2, **options
    )


def test_golden() -> None:
    continuous.check_golden("dsac", dsac, lambda agent, b, i: agent.update(b))


def test_resume_is_exact(train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    continuous.check_resume("dsac", dsac, train, monkeypatch)


def test_a_buffer_smaller_than_one_iteration_is_refused() -> None:
    with pytest.raises(
        UserError, match="5 transitions cannot hold the 10 × 1 steps .* buffer_size of at least 10"
    ):
        dsac.Config(steps_per_update=10, buffer_size=5)
