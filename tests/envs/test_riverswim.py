import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from critex.envs.riverswim import LEFT, RIGHT, RiverSwim, river
from critex.errors import UserError


def test_the_model() -> None:
    P, R = river(5)
    np.testing.assert_allclose(P.sum(-1), 1.0)
    assert P[0, RIGHT].tolist() == [0.4, 0.6, 0, 0, 0]
    assert P[2, RIGHT].tolist() == [0, 0.05, 0.6, 0.35, 0]
    assert P[4, RIGHT].tolist() == [0, 0, 0, 0.4, 0.6]
    assert all(P[s, LEFT, max(s - 1, 0)] == 1.0 for s in range(5))
    assert R[0, LEFT] == 0.005 and R[4, RIGHT] == 1.0 and R.sum() == 1.005


def test_always_left_earns_the_crumb() -> None:
    env = RiverSwim(6, horizon=20)
    env.reset(seed=0)
    rewards = []
    for t in range(20):
        obs, reward, terminated, truncated, info = env.step(np.int64(LEFT))
        rewards.append(reward)
        assert not terminated and truncated == (t == 19)
        assert info["position"].tolist() == [0] and obs[0] == 1.0
    assert sum(rewards) == pytest.approx(0.1)


def test_samples_follow_the_model() -> None:
    """1 000 episodes of always-right: mean return against the exact one, Σ_t (μ P^t)·R."""
    env, returns = RiverSwim(3, horizon=10), []
    exact, state = 0.0, np.array([1.0, 0.0, 0.0])
    for _ in range(10):
        exact += state @ env.R[:, RIGHT]
        state = state @ env.P[:, RIGHT]
    for episode in range(1000):
        env.reset(seed=episode)
        returns.append(sum(env.step(np.int64(RIGHT))[1] for _ in range(10)))
    assert abs(np.mean(returns) - exact) < 4 * np.std(returns) / np.sqrt(1000)


def test_passes_the_checker_through_the_registry() -> None:
    env = gym.make("RiverSwim-6-v0", render_mode="rgb_array", horizon=7)
    check_env(env.unwrapped)
    env.reset()
    assert env.render().shape == (16, 96, 3)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UserError, match="size"):
        RiverSwim(1)
