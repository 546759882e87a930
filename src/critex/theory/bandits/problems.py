"""Synthetic contextual bandits with known means, and the regret of playing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from critex.theory.planning import Streams
from critex.theory.problems import Array, Integers


@dataclass(frozen=True)
class Bandit:
    """In each round every arm has a context x on the unit sphere; pulling it pays mean(θᵀx) + noise·N(0, 1)."""

    name: str
    mean: Callable[[Array], Array]
    dim: int = 8
    arms: int = 5
    noise: float = 0.1


class BanditAgent(Protocol):
    """Chooses an arm, then sees its reward."""

    def choose(self, x: Array) -> Integers:
        """The arm of each seed, [S], for contexts [S, arms, d]."""

    def update(self, x: Array, reward: Array) -> None:
        """Learn from the contexts [S, d] of the chosen arms and their rewards [S]."""


BANDITS: dict[str, Bandit] = {
    "linear-bandit": Bandit("linear-bandit", lambda z: z),
    "quadratic-bandit": Bandit("quadratic-bandit", lambda z: np.asarray(2 * z**2)),
    "cosine-bandit": Bandit("cosine-bandit", lambda z: np.asarray(np.cos(3 * z))),
}


def bandit_regret(
    bandit: Bandit,
    agent: BanditAgent,
    rounds: int,
    seeds: Sequence[int],
    progress: Callable[[int], None] | None = None,
) -> Array:
    """max_a mean(θᵀx_a) − mean(θᵀx_chosen) of each round, [S, T]; θ is drawn for each seed, of length 1."""
    streams, seed = Streams(seeds, "environment"), np.arange(len(seeds))
    theta = _unit(streams.normal(bandit.dim))
    lost = np.empty((len(seeds), rounds))
    for t in range(rounds):
        x = _unit(streams.normal(bandit.arms, bandit.dim))
        means = bandit.mean(np.matmul(x, theta[:, :, None])[:, :, 0])
        arm = agent.choose(x)
        lost[:, t] = means.max(-1) - means[seed, arm]
        agent.update(x[seed, arm], means[seed, arm] + bandit.noise * streams.normal())
        if progress:
            progress(t + 1)
    return lost


def _unit(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))
