"""LSVI-PHE (Ishfaq et al., 2021): perturbed history, and the best of an ensemble."""

from __future__ import annotations

import numpy as np

from critex.theory.peers.lsvi import LSVI
from critex.theory.problems import Array


class LSVIPHE(LSVI):
    """Q_h = min(max_j φᵀ(w_h + αξ_j), H − h + 1)₊, with fresh noise on all targets and on the prior in every episode.

    Noise α·N(0, 1) on the targets and α·N(0, λI) on the prior change w_h by αA_h⁻¹(Σφε + √λε₀), whose distribution is
    exactly α·N(0, A_h⁻¹); we sample that directly.
    """

    ensemble = 8

    def prepare(self) -> None:
        noise = self.streams.normal(self.problem.horizon, self.memory.dim, self.ensemble)
        self.noise = self.alpha * self.memory.draws(noise)

    def value(self, h: int, w: Array) -> Array:
        best = self.memory.linear(w[..., None] + self.noise[:, h]).max(-1)
        return np.asarray(np.clip(best, 0.0, self.problem.horizon - h))
