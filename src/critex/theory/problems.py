"""Finite-horizon problems small enough to be solved exactly.

All arrays have a leading axis of instances: 1 where every seed plays the same problem, S where each seed has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """An episodic MDP (S, A, H, P, r) with n states, A actions and known features φ(s,a), ‖φ‖ ≤ 1."""

    name: str
    transition: Array
    """P(s'|s,a), [I, n, A, n]."""
    reward: Array
    """r(s,a), deterministic, [I, n, A]."""
    start: Array
    """Distribution of s_1, [I, n]."""
    horizon: int
    phi: Array
    """φ(s,a), [I, n, A, d], in which P and r are linear."""

    @property
    def states(self) -> int:
        return int(self.reward.shape[1])

    @property
    def actions(self) -> int:
        return int(self.reward.shape[2])

    @property
    def dim(self) -> int:
        """d, the length of φ."""
        return int(self.phi.shape[-1])

    def inputs(self) -> Array:
        """(s; a; s; a) as one-hot codes of length 1, the network inputs of Assumption 1: [n, A, 2(n + A)]."""
        state, action = np.eye(self.states), np.eye(self.actions)
        pair = np.concatenate(
            [np.repeat(state[:, None], self.actions, 1), np.repeat(action[None], self.states, 0)], -1
        )
        return np.asarray(np.concatenate([pair, pair], -1) / 2)


def tabular(name: str, transition: Array, reward: Array, horizon: int) -> Problem:
    """A problem with one-hot features, d = nA, that starts in its first state: [I, n, A, n], [I, n, A]."""
    instances, n, actions = reward.shape
    phi = np.eye(n * actions).reshape(1, n, actions, n * actions)
    first = np.zeros((instances, n))
    first[:, 0] = 1.0
    return Problem(name, transition, reward, first, horizon, phi)


def riverswim(seeds: Sequence[int] = (), size: int = 4, horizon: int = 8) -> Problem:
    """RiverSwim: the current pushes left, where there is a small reward; the large one is at the right bank."""
    P, r = np.zeros((size, 2, size)), np.zeros((size, 2))
    for s in range(size):
        P[s, 0, max(s - 1, 0)] = 1.0
        back, stay, forth = (0.05, 0.6, 0.35)
        if s == 0:
            back, stay, forth = (0.0, 0.4, 0.6)
        if s == size - 1:
            back, stay, forth = (0.4, 0.6, 0.0)
        for move, probability in ((-1, back), (0, stay), (1, forth)):
            P[s, 1, (s + move) % size] += probability
    r[0, 0], r[-1, 1] = 0.005, 1.0
    return tabular("riverswim", P[None], r[None], horizon)


def deepsea(seeds: Sequence[int] = (), size: int = 5, cost: float = 0.01) -> Problem:
    """DeepSea: N×N cells, one row per step. Going right costs cost/N, and pays 1 in the last corner only.

    Costs make r negative, outside the [0, 1] of the theory.
    """
    P, r = np.zeros((size * size, 2, size * size)), np.zeros((size * size, 2))
    for row in range(size):
        for column in range(size):
            cell, below = row * size + column, min(row + 1, size - 1) * size
            P[cell, 0, below + max(column - 1, 0)] = 1.0
            P[cell, 1, below + min(column + 1, size - 1)] = 1.0
            r[cell, 1] = -cost / size
    r[-1, 1] += 1.0
    return tabular("deepsea", P[None], r[None], size)


def combination_lock(seeds: Sequence[int] = (1,), length: int = 5, actions: int = 3) -> Problem:
    """A lock with one code of `length` actions, drawn for each seed. A wrong digit leads to a dead end that pays 0.1
    once, so the nearest reward is the wrong one; the whole code pays 1."""
    states, dead = length + 2, length + 1
    P, r = np.zeros((len(seeds), states, actions, states)), np.zeros((len(seeds), states, actions))
    P[:, -2:, :, dead] = 1.0
    for i, seed in enumerate(seeds):
        code = np.random.default_rng([seed, 1]).integers(actions, size=length)
        for s, digit in enumerate(code):
            P[i, s, :, dead] = 1.0
            r[i, s] = 0.1
            P[i, s, digit] = np.eye(states)[s + 1]
            r[i, s, digit] = float(s == length - 1)
    return tabular("lock", P, r, length)


def random_tabular(
    seeds: Sequence[int] = (1,), states: int = 6, actions: int = 3, horizon: int = 6
) -> Problem:
    """P(·|s,a) ~ Dirichlet(1/2), and r(s,a) uniform on [0, 1] in a third of the pairs, else 0; one for each seed."""
    P, r = [], []
    for seed in seeds:
        rng = np.random.default_rng([seed, 2])
        P.append(rng.dirichlet(np.full(states, 0.5), size=(states, actions)))
        r.append(rng.random((states, actions)) * (rng.random((states, actions)) < 1 / 3))
    return tabular("random", np.array(P), np.array(r), horizon)


def linear_mdp(
    seeds: Sequence[int] = (1,), dim: int = 6, states: int = 12, actions: int = 4, horizon: int = 6
) -> Problem:
    """P(s'|s,a) = φ(s,a)ᵀμ(s') and r(s,a) = φ(s,a)ᵀw, with d much smaller than nA; one for each seed.

    φ(s,a) lies in the simplex, so ‖φ‖ ≤ 1 and every mixture of the d distributions μ is one.
    """
    P, r, features = [], [], []
    for seed in seeds:
        rng = np.random.default_rng([seed, 3])
        phi = rng.dirichlet(np.full(dim, 0.3), size=(states, actions))
        mu = rng.dirichlet(np.full(states, 0.2), size=dim)
        P.append(phi @ mu)
        r.append(phi @ (rng.random(dim) * (rng.random(dim) < 0.5)))
        features.append(phi)
    return replace(tabular("linear", np.array(P), np.array(r), horizon), phi=np.array(features))


PROBLEMS: dict[str, Callable[[Sequence[int]], Problem]] = {
    "riverswim": riverswim,
    "deepsea": deepsea,
    "lock": combination_lock,
    "random": random_tabular,
    "linear": linear_mdp,
}
