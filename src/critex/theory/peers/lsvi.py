"""Least-squares value iteration, shared by all linear methods."""

from __future__ import annotations

import numpy as np

from critex.theory.memory import Regression
from critex.theory.planning import Episode, Streams
from critex.theory.problems import Array, Problem


class LSVI:
    """For h = H … 1: w_h = A_h⁻¹ Σφ(r + max_a Q_{h+1}(s',a)); each method defines Q_h from φᵀw_h."""

    def __init__(
        self, problem: Problem, streams: Streams, alpha: float, ridge: float = 1.0, phi: Array | None = None
    ) -> None:
        self.problem, self.streams, self.alpha = problem, streams, alpha
        self.memory = Regression(problem, len(streams), ridge, phi)

    def prepare(self) -> None:
        """Compute what a method needs once per episode, before its values."""

    def value(self, h: int, w: Array) -> Array:
        """Q_h(s,a), [S, n, A], from the regression w_h [S, d]."""
        return self.memory.linear(w)

    def q(self) -> Array:
        """Q_h(s,a) from all episodes so far, [S, H, n, A]."""
        self.prepare()
        shape = (len(self.streams), self.problem.horizon, self.problem.states, self.problem.actions)
        q, following = np.empty(shape), np.zeros((len(self.streams), self.problem.states))
        for h in reversed(range(self.problem.horizon)):
            q[:, h] = self.value(h, self.memory.weights(h, following))
            following = q[:, h].max(-1)
        return q

    def update(self, episode: Episode) -> None:
        """Add an episode of each seed to the regression."""
        self.memory.add(episode)
