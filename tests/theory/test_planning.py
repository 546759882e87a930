"""Exact values, episodes and regret."""

import numpy as np
import pytest

from critex.envs.deepsea import DeepSea
from critex.envs.riverswim import RiverSwim
from critex.theory import PROBLEMS, Streams, evaluate, optimal, play, regret
from critex.theory.problems import deepsea, riverswim, tabular

SEEDS = (1, 2, 3)


def two_states():
    """Staying in state 0 pays 0.2; leaving it (action 1) pays 0 once, and then state 1 pays 1 for every step."""
    P = np.zeros((1, 2, 2, 2))
    P[0, 0, 0, 0] = P[0, 0, 1, 1] = P[0, 1, :, 1] = 1.0
    return tabular("two", P, np.array([[[0.2, 0.0], [1.0, 1.0]]]), horizon=3)


class Fixed:
    def __init__(self, q):
        self.values = q

    def q(self):
        return self.values

    def update(self, episode):
        pass


class Uniform:
    """A fresh random policy in each episode."""

    def __init__(self, problem, seeds):
        self.streams, self.shape = Streams(seeds, "agent"), (problem.horizon, problem.states, problem.actions)

    def q(self):
        return self.streams.uniform(*self.shape)

    def update(self, episode):
        pass


def test_closed_form_of_two_states():
    q = optimal(two_states())[0]
    # Leaving at once is worth 0 + 1 + 1; staying once and then leaving 0.2 + 0 + 1.
    np.testing.assert_allclose(q[0, 0], [1.2, 2.0])
    np.testing.assert_allclose(q[1, 0], [0.2 + 0.2, 1.0])
    np.testing.assert_allclose(q[2], [[0.2, 0.0], [1.0, 1.0]])
    stay = np.zeros((1, 3, 2), np.int64)
    np.testing.assert_allclose(evaluate(two_states(), stay)[0], [0.6, 3.0])


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_are_proper_and_linear_in_phi(name):
    problem = PROBLEMS[name](SEEDS)
    np.testing.assert_allclose(problem.transition.sum(-1), 1.0)
    np.testing.assert_allclose(problem.start.sum(-1), 1.0)
    assert np.linalg.norm(problem.phi, axis=-1).max() <= 1 + 1e-12
    for i in range(len(problem.reward)):
        phi = problem.phi[i % len(problem.phi)].reshape(-1, problem.dim)
        for target in (problem.reward[i].reshape(-1, 1), problem.transition[i].reshape(len(phi), -1)):
            fitted = phi @ np.linalg.lstsq(phi, target, rcond=None)[0]
            np.testing.assert_allclose(fitted, target, atol=1e-10)
    x = problem.inputs()
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1.0)
    half = x.shape[-1] // 2
    np.testing.assert_array_equal(x[..., :half], x[..., half:])


def test_riverswim_and_deepsea_are_those_of_the_envs():
    env, problem = RiverSwim(5), riverswim(size=5)
    np.testing.assert_allclose(problem.transition[0], env.P)
    np.testing.assert_allclose(problem.reward[0], env.R)
    sea, problem = DeepSea(4, randomize_actions=False), deepsea(size=4)
    for actions in np.ndindex(2, 2, 2, 2):
        sea.reset()
        total, state, value = 0.0, 0, 0.0
        for action in actions:
            total += sea.step(np.int64(action))[1]
            value += problem.reward[0, state, action]
            state = int(problem.transition[0, state, action].argmax())
        assert total == pytest.approx(value)


@pytest.mark.parametrize("name", PROBLEMS)
def test_regret_of_an_optimal_policy_is_zero(name):
    problem = PROBLEMS[name](SEEDS)
    best = np.broadcast_to(optimal(problem), (3, *optimal(problem).shape[1:]))
    np.testing.assert_allclose(regret(problem, Fixed(best), 20, SEEDS), 0.0, atol=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_regret_of_a_uniform_policy_is_linear(name):
    problem = PROBLEMS[name](SEEDS)
    lost = regret(problem, Uniform(problem, SEEDS), 400, SEEDS)
    assert (lost >= -1e-12).all()
    first, second = lost[:, :200].sum(), lost[:, 200:].sum()
    assert first > 0
    assert second == pytest.approx(first, rel=0.2)


def test_exact_value_is_the_mean_of_episodes():
    problem = PROBLEMS["random"]((1,))
    policy = np.random.default_rng(0).integers(problem.actions, size=(1, problem.horizon, problem.states))
    streams = Streams((1,), "environment")
    returns = [play(problem, policy, streams).rewards.sum() for _ in range(3000)]
    error = np.std(returns) / np.sqrt(len(returns))
    assert np.mean(returns) == pytest.approx(evaluate(problem, policy)[0, 0], abs=4 * error)


def test_a_seed_plays_the_same_alone_and_among_others():
    from critex.theory.peers import LSVIPHE

    def lost(seeds):
        problem = PROBLEMS["random"](seeds)
        return regret(problem, LSVIPHE(problem, Streams(seeds, "agent"), 0.5), 30, seeds)

    np.testing.assert_allclose(lost((1, 2, 3))[1], lost((2,))[0], atol=1e-9)
