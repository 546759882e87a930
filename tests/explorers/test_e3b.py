"""E3B: the elliptical bonus of the state alone, over an encoder that inverse dynamics train."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from critex.bonus import Gram
from critex.explorers import E3B, E3BConfig, ExplorationConfig, make_explorer
from tests.explorers.rollouts import A, D, at, episode, flat, place, rollout

X, Y = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]


def over(critic: object, options: E3BConfig, num_envs: int = 1) -> E3B:
    """E3B whose φ(s) is known."""
    explorer = E3B(replace(options, width=D), place(num_envs=num_envs))
    explorer.embedding = replace(explorer.embedding, critic=critic)
    return explorer


def identity(obs: Tensor) -> Tensor:
    return obs


def test_repeated_unit_feature() -> None:
    """λ = 0.1: 10, 1/1.1, 1/2.1; the first step of an episode is not paid. Of s, not of s', whatever the action."""
    steps = episode([X, X, X, Y, X], action=[0, 1, 2, 0])
    explorer = over(identity, E3BConfig(scaling="none", zero_first=False))
    assert explorer.bonus_rollout(steps).flatten().tolist() == pytest.approx([10, 1 / 1.1, 1 / 2.1, 10])
    first_is_free = over(identity, E3BConfig(scaling="none"))
    for _ in range(2):  # a new episode has forgotten
        assert first_is_free.bonus_rollout(steps).flatten().tolist() == pytest.approx(
            [0, 1 / 1.1, 1 / 2.1, 10]
        )


def test_defaults_are_its_authors() -> None:
    explorer = E3B(E3BConfig(), place())
    assert explorer.episodic and explorer.gram.memories == 2 and explorer.gram.dim == 128
    assert (explorer.config.ridge, explorer.config.strategy) == (0.1, "ucb_squared")


def test_the_critics_embedding_plays_no_part() -> None:
    steps = rollout(20)
    explorer = E3B(E3BConfig(scaling="none", zero_first=False), place(critic=lambda obs: 1 / 0))
    with torch.no_grad():
        phi = explorer.encoder(steps.obs)
    expected = Gram(128, ridge=0.1, memories=2).observe_rollout(phi, steps.episode_start)
    got = explorer.bonus_rollout(steps, torch.full((20, 2, D), torch.nan))
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def test_parameters() -> None:
    """Encoder D → w → w and f̄ 2w → h → A."""
    explorer = E3B(E3BConfig(width=8, hidden=16), place())
    count = (D * 8 + 8) + (8 * 8 + 8) + (16 * 16 + 16) + (16 * A + A)
    assert explorer.card()["parameters_added"] == sum(p.numel() for p in explorer.learned()) == count


def test_untrained_loss_is_the_uniform_entropy() -> None:
    explorer = E3B(E3BConfig(), place("image"))
    nn.init.zeros_(explorer.inverse.head.weight)
    assert explorer.loss(flat(rollout(5, "image"))).item() == pytest.approx(torch.tensor(A).log())


def test_learns_the_action() -> None:
    """s' = s + e_a: the action can be known from both."""
    torch.manual_seed(0)
    explorer = E3B(E3BConfig(width=32, hidden=32), place())
    optimizer = torch.optim.Adam(explorer.learned(), lr=1e-2)
    rng = torch.Generator().manual_seed(0)
    for _ in range(150):
        batch = flat(rollout(32, seed=int(torch.randint(10**6, (), generator=rng))))
        batch.obs = torch.randn(64, D, generator=rng)
        batch.next_obs = batch.obs + torch.eye(D)[batch.action]
        loss = explorer.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.4  # uniform would be log 3 = 1.1


def test_pairs_across_episode_ends() -> None:
    steps = rollout(20)
    crossing, truth = (E3B(E3BConfig(cross_episode_ends=c), place()) for c in (True, False))
    truth.load_state_dict(crossing.state_dict())
    follow = replace(steps, next_obs=torch.cat([steps.obs[1:], steps.next_obs[-1:]]))
    assert torch.equal(crossing.loss(crossing.prepare(steps)), truth.loss(follow))
    assert not torch.equal(crossing.loss(crossing.prepare(steps)), truth.loss(truth.prepare(steps)))


def test_a_lifelong_one_can_be_measured_again() -> None:
    torch.manual_seed(0)
    options = E3BConfig(scope="lifelong", zero_first=False)
    cfg = ExplorationConfig(explorer="e3b", bonus=options, recompute=True)
    explorer = make_explorer(cfg, place())
    steps = rollout(10)
    explorer.bonus_rollout(steps)
    later, _ = explorer.measure(steps.obs[0], steps.action[0], steps.next_obs[0])
    fresh = make_explorer(cfg, place())
    fresh.load_state_dict(explorer.state_dict())
    assert torch.equal(later, fresh.measure(steps.obs[0], steps.action[0], steps.next_obs[0])[0])
    assert (later < explorer.measure(10 * steps.obs[0], steps.action[0])[0]).all()
    assert fresh.bonus(at(steps, 0)).shape == (2,)
