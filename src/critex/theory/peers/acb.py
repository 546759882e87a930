"""ACB (Ash et al., 2022): a bonus from regressions on pure noise."""

from __future__ import annotations

import numpy as np

from critex.theory.peers.lsvi import LSVI
from critex.theory.planning import Episode, Streams
from critex.theory.problems import Array, Problem


class ACB(LSVI):
    """Q_h = min(φᵀw_h + α max_j |φᵀu_j|, H − h + 1), where u_j regresses N(0, 1) noise on φ, one draw for each visit.

    With u_j = A_h⁻¹(√λε₀ + Σφε), each φᵀu_j is N(0, φᵀA_h⁻¹φ): an anti-concentrated estimate of the width. The noise
    of a visit is kept, so an episode costs one addition per ensemble member and no new regression.
    """

    ensemble = 16

    def __init__(self, problem: Problem, streams: Streams, alpha: float, ridge: float = 1.0) -> None:
        super().__init__(problem, streams, alpha, ridge)
        self.sums = ridge**0.5 * streams.normal(problem.horizon, self.memory.dim, self.ensemble)

    def prepare(self) -> None:
        noise = np.matmul(self.memory.inverse, self.sums)  # u, [S, H, d, J]
        self.bonus = self.alpha * np.stack(
            [self._largest(noise[:, h]) for h in range(self.problem.horizon)], 1
        )

    def _largest(self, noise: Array) -> Array:
        members = [np.abs(self.memory.linear(noise[:, :, j])) for j in range(self.ensemble)]
        return np.asarray(np.max(members, axis=0))

    def value(self, h: int, w: Array) -> Array:
        return np.minimum(self.memory.linear(w) + self.bonus[:, h], self.problem.horizon - h)

    def update(self, episode: Episode) -> None:
        phi = self.memory.add(episode)
        self.sums += phi[..., None] * self.streams.normal(self.problem.horizon, 1, self.ensemble)
