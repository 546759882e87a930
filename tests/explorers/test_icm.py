"""ICM: forward and inverse errors by hand, and that what is predictable is no longer paid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from critex.explorers import ICM, ICMConfig
from tests.explorers.rollouts import A, D, episode, flat, place, rollout


def known(**options: Any) -> ICM:
    """φ(s) = s, F(φ, a) = (a = 1)·(3, 4, 0, 0), p(a) uniform."""
    explorer = ICM(ICMConfig(width=D, **options), place(num_envs=1))
    explorer.encoder = nn.Identity()
    explorer.forward_model = nn.Linear(D + A, D)
    for parameter in (*explorer.forward_model.parameters(), explorer.inverse.head.weight):
        nn.init.zeros_(parameter)
    with torch.no_grad():
        explorer.forward_model.weight[:2, D + 1] = torch.tensor([3.0, 4.0])
    return explorer


STEPS = episode([[7.0, 7.0, 7.0, 7.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]], action=[1, 0])


def test_closed_forms() -> None:
    explorer = known(forward_coef=2.0, inverse_coef=0.5)
    assert explorer.bonus_rollout(STEPS).flatten().tolist() == [5.0, 2.0]
    assert explorer.measure(STEPS.obs, STEPS.action, STEPS.next_obs)[0].flatten().tolist() == [5.0, 2.0]
    expected = 2.0 * 3.5 + 0.5 * torch.tensor(A).log().item()
    assert explorer.loss(flat(STEPS)).item() == pytest.approx(expected)


def test_the_mean_square_of_the_error() -> None:
    """In place of its length, in bonus and loss."""
    explorer = known(error="mse", forward_coef=2.0, inverse_coef=0.0)
    assert explorer.bonus_rollout(STEPS).flatten().tolist() == [25 / D, 4 / D]
    assert explorer.loss(flat(STEPS)).item() == 29 / D


def test_the_gradient_reaches_both_embeddings() -> None:
    """φ(s') is not held fixed."""
    torch.manual_seed(0)
    explorer = ICM(ICMConfig(inverse_coef=0.0), place())
    batch = flat(rollout(3))
    batch.obs, batch.next_obs = (x.requires_grad_() for x in (batch.obs, batch.next_obs))  # type: ignore[union-attr]
    gradients = torch.autograd.grad(explorer.loss(batch), [batch.obs, batch.next_obs])  # type: ignore[list-item]
    assert all(g.abs().sum() > 0 for g in gradients)


def test_parameters() -> None:
    """Encoder D → w → w, F: w + A → w → w, f̄: 2w → h → A."""
    explorer = ICM(ICMConfig(width=8, hidden=16), place())
    encoder = (D * 8 + 8) + (8 * 8 + 8)
    forward = ((8 + A) * 8 + 8) + (8 * 8 + 8)
    inverse = (16 * 16 + 16) + (16 * A + A)
    assert explorer.card()["parameters_added"] == encoder + forward + inverse


def test_what_it_has_learned_to_predict_is_paid_less() -> None:
    torch.manual_seed(0)
    explorer = ICM(ICMConfig(width=32, inverse_coef=1.0), place())
    steps = flat(rollout(10))
    seen, new = (steps.map(lambda x, rows=rows: x[rows]) for rows in (slice(0, 3), slice(3, 20)))
    before = explorer.raw(seen).mean().item()
    optimizer = torch.optim.Adam(explorer.learned(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        explorer.loss(seen).backward()
        optimizer.step()
    after = explorer.raw(seen).mean().item()
    assert after < before
    assert explorer.raw(new).mean().item() > 2 * after


def test_across_episode_ends_bonus_and_loss_pair_what_follows() -> None:
    steps = rollout(20)
    crossing, truth = (ICM(ICMConfig(cross_episode_ends=c), place()) for c in (True, False))
    truth.load_state_dict(crossing.state_dict())
    follow = replace(steps, next_obs=torch.cat([steps.obs[1:], steps.next_obs[-1:]]))
    assert torch.equal(crossing.bonus_rollout(steps), truth.bonus_rollout(follow))
    assert not torch.equal(truth.bonus_rollout(steps), truth.bonus_rollout(follow))
    assert torch.equal(crossing.loss(crossing.prepare(steps)), truth.loss(follow))
