"""OPT-RLSVI (Zanette et al., 2020): one perturbed regression, and an optimistic default where little is known."""

from __future__ import annotations

import numpy as np

from critex.theory.peers.lsvi import LSVI
from critex.theory.problems import Array


class OPTRLSVI(LSVI):
    """Q_h = φᵀ(w_h + αξ) where the width √(φᵀA_h⁻¹φ) is at most `lower`, and H − h + 1 where it is at least `upper`.

    ξ ~ N(0, A_h⁻¹) is drawn once for each episode and step. Between the two widths Q_h is interpolated linearly; nothing
    is clipped.
    """

    lower, upper = 0.5, 0.9

    def prepare(self) -> None:
        self.width = self.memory.width()
        normal = self.streams.normal(self.problem.horizon, self.memory.dim, 1)
        self.noise = self.alpha * self.memory.draws(normal)[..., 0]

    def value(self, h: int, w: Array) -> Array:
        known = np.clip((self.upper - self.width[:, h]) / (self.upper - self.lower), 0.0, 1.0)
        sampled = self.memory.linear(w + self.noise[:, h])
        return known * sampled + (1 - known) * (self.problem.horizon - h)
