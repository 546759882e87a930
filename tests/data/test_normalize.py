"""Normalisers against numpy over the whole history and against gymnasium's wrappers on a real environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from critex.data.normalize import Moments, ObservationNormalizer, RewardNormalizer


def history(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of rows [n, d] together with the prior: weight 1e-4, mean 0, variance 1."""
    w = 1e-4
    total = w + len(x)
    mean = x.sum(0) / total
    return mean, (w + (x * x).sum(0)) / total - mean * mean


@pytest.mark.parametrize("n", [1, 3])
def test_moments_are_those_of_the_whole_history(n: int) -> None:
    x = np.random.default_rng(0).normal(3.0, 2.0, (200, n, 4))
    moments = Moments(4)
    for batch in x:
        moments.update(batch)
    mean, var = history(x.reshape(-1, 4))
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(moments.var, var, rtol=1e-9)
    assert moments.count == pytest.approx(200 * n + 1e-4)


@pytest.mark.parametrize("n", [1, 3])
def test_a_sequence_at_once_equals_one_batch_after_the_other(n: int) -> None:
    rng = np.random.default_rng(1)
    together, singly = Moments(), Moments()
    for block in (rng.normal(5.0, 1.0, (30, n)), 100.0 + rng.normal(size=(50, n))):
        variances = []
        for batch in block:
            singly.update(batch)
            variances.append(float(singly.var))
        np.testing.assert_allclose(together.update_sequence(block), variances, rtol=1e-9)
        np.testing.assert_allclose(together.mean, singly.mean, rtol=1e-12)
        assert together.count == pytest.approx(singly.count, rel=1e-12)


def test_first_observation() -> None:
    """After x = 2 alone: mean 2·1/(1+1e-4), variance of the mixture with the prior."""
    normalizer = ObservationNormalizer(1)
    normalizer.update(torch.tensor([[2.0]]))
    mean, var = history(np.array([[2.0]]))
    expected = (2.0 - mean) / np.sqrt(var + 1e-8)
    np.testing.assert_allclose(normalizer(torch.tensor([[2.0]])).numpy(), [expected], rtol=1e-5)


def test_observations_and_rewards_are_clipped_at_ten() -> None:
    normalizer = ObservationNormalizer(2)
    for _ in range(100):
        normalizer.update(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    assert normalizer(torch.tensor([[1e6, -1e6]])).tolist() == [[10.0, -10.0]]
    rewards = RewardNormalizer(0.0, 1)
    calm = rewards(torch.tensor([[0.01], [-0.01]]).repeat(200, 1), torch.zeros(400, 1, dtype=torch.bool))
    assert calm.abs().max() < 10
    burst = rewards(torch.tensor([[0.2], [-0.2]]), torch.zeros(2, 1, dtype=torch.bool))
    assert burst.flatten().tolist() == pytest.approx([10.0, -10.0])


def test_normalising_changes_no_statistics() -> None:
    normalizer = ObservationNormalizer(3)
    normalizer.update(torch.randn(5, 3))
    before = normalizer.state_dict()
    normalizer(torch.randn(7, 3))
    after = normalizer.state_dict()
    assert torch.equal(before["mean"], after["mean"]) and torch.equal(before["var"], after["var"])


def test_gymnasium_gives_the_same_numbers() -> None:
    """On Hopper, where episodes terminate: γ·(1 − terminated) stands before the *old* return."""
    pytest.importorskip("mujoco")
    raw = gym.make("Hopper-v5", max_episode_steps=25)  # some episodes end by the clock, some by a fall
    env = NormalizeReward(NormalizeObservation(gym.make("Hopper-v5", max_episode_steps=25)), gamma=0.95)
    ours, rng = ObservationNormalizer(raw.observation_space.shape[0]), np.random.default_rng(0)
    seen, expected, rewards, terminations, expected_rewards = [], [], [], [], []

    def look(obs: np.ndarray, reference: np.ndarray) -> None:
        x = torch.from_numpy(obs[None])
        ours.update(x)
        seen.append(ours(x)[0].numpy())
        expected.append(np.clip(reference, -10, 10))

    truncations = 0
    for episode in range(15):
        look(raw.reset(seed=episode)[0], env.reset(seed=episode)[0])
        ended = False
        while not ended:
            action = rng.uniform(-1, 1, 3)
            obs, reward, terminated, truncated, _ = raw.step(action)
            reference, reference_reward, *_ = env.step(action)
            look(obs, reference)
            rewards.append(reward)
            terminations.append(terminated)
            expected_rewards.append(np.clip(reference_reward, -10, 10).item())
            truncations += truncated and not terminated
            ended = terminated or truncated
    assert truncations and any(terminations)
    np.testing.assert_allclose(seen, expected, rtol=1e-6, atol=1e-7)
    normalizer = RewardNormalizer(0.95, 1)
    reward, terminated = (
        torch.tensor(rewards, dtype=torch.float64)[:, None],
        torch.tensor(terminations)[:, None],
    )
    got = torch.cat([normalizer(reward[:33], terminated[:33]), normalizer(reward[33:], terminated[33:])])
    np.testing.assert_allclose(got[:, 0], expected_rewards, rtol=1e-9)


def test_resume_is_exact() -> None:
    reward, none = torch.randn(20, 2), torch.zeros(20, 2, dtype=torch.bool)
    one, two = RewardNormalizer(0.9, 2), RewardNormalizer(0.9, 2)
    one(reward, none)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(reward, none), two(reward, none))
    first, second, x = ObservationNormalizer(3), ObservationNormalizer(3), torch.randn(6, 3)
    first.update(x)
    second.load_state_dict(first.state_dict())
    for normalizer in (first, second):
        normalizer.update(x[:1])
    assert torch.equal(first(x), second(x))
    with pytest.raises(ValueError, match="shape"):
        ObservationNormalizer(4).load_state_dict(first.state_dict())
