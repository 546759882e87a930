from itertools import product

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from critex.envs.deepsea import DeepSea
from critex.errors import UserError
from critex.networks import Flatten


def play(env: DeepSea, actions: tuple[int, ...], seed: int = 0) -> tuple[float, list[np.ndarray]]:
    """The return, and the observations; checks that the episode lasts exactly as long as the actions."""
    obs, _ = env.reset(seed=seed)
    total, seen = 0.0, [obs]
    for t, action in enumerate(actions):
        obs, reward, terminated, truncated, _ = env.step(np.int64(action))
        assert terminated == (t == len(actions) - 1) and not truncated
        total += reward
        seen.append(obs)
    return total, seen


@pytest.mark.parametrize("size", [2, 5, 8])
def test_exactly_one_of_all_sequences_pays(size: int) -> None:
    env = DeepSea(size)
    returns = {actions: play(env, actions)[0] for actions in product((0, 1), repeat=size)}
    best = tuple(int(env.right[i, i]) for i in range(size))  # right all the way down the diagonal
    assert returns[best] == pytest.approx(0.99, abs=1e-12)
    assert sum(r > 0 for r in returns.values()) == 1
    # every right costs 0.01/N, and nothing else is paid or taken
    others = {round(r * size / -0.01, 6) for actions, r in returns.items() if actions != best}
    assert others <= set(map(float, range(size + 1)))


def test_observation_is_the_one_hot_cell_and_position_its_coordinates() -> None:
    env = DeepSea(4, randomize_actions=False)
    env.reset()
    cells = []
    for action in (1, 0, 0, 1):  # right, left, left (stays at the edge), right
        obs, *_, info = env.step(np.int64(action))
        assert obs.shape == (16,) and obs.dtype == np.float32
        cells.append(tuple(info["position"].tolist()))
        assert obs.sum() == (info["position"][0] < 4)
        assert info["position"][0] == 4 or obs[info["position"][0] * 4 + info["position"][1]] == 1.0
    assert cells == [(1, 1), (2, 0), (3, 0), (4, 1)]


def test_the_mapping_depends_on_its_own_seed_alone() -> None:
    first, second, other = DeepSea(10), DeepSea(10), DeepSea(10, mapping_seed=7)
    first.reset(seed=1)
    second.reset(seed=2)
    assert (first.right == second.right).all()
    assert (first.right != other.right).any()
    assert set(first.right.ravel().tolist()) == {0, 1}
    assert (DeepSea(10, randomize_actions=False).right == 1).all()
    actions = tuple(np.random.default_rng(0).integers(0, 2, 10).tolist())
    (a, seen_a), (b, seen_b) = play(first, actions, seed=3), play(second, actions, seed=4)
    assert a == b and all(np.array_equal(x, y) for x, y in zip(seen_a, seen_b, strict=True))


def test_passes_the_checker_through_the_registry() -> None:
    env = gym.make("DeepSea-6-v0", render_mode="rgb_array")
    check_env(env.unwrapped)
    env.reset()
    frame = env.render()
    assert frame.shape == (96, 96, 3) and frame.dtype == np.uint8
    assert (frame[0, 0] != frame[0, -1]).any() and (frame[-1, -1] != frame[0, -1]).any()


def test_too_small_is_refused() -> None:
    with pytest.raises(UserError, match="at least 2"):
        DeepSea(1)


def test_the_deepest_sea_that_is_registered_can_be_learned() -> None:
    """Its one-hot cell is a vector that networks take."""
    assert Flatten(gym.make("DeepSea-100-v0").observation_space).dim == 10_000
