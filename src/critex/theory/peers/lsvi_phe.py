"""LSVI-PHE (Ishfaq et al., 2021): perturbed history, and the best of an ensemble."""

from __future__ import annotations

import numpy as np

from critex.theory.peers.lsvi import LSVI
from critex.theory.problems import Array


class LSVIPHE(LSVI):
    """Q_h = min(max_j φᵀ(w_h + αξ_j), H − h + 1)₊ with fresh noise on every target and on the prior each episode.

    Noise α·N(0, 1) on the targets and α·N(0, λI) on the ridge change w_h by A_h⁻¹ α(Σφε + √λε₀), whose distribution is
    exactly α·N(0, A_h⁻¹); we sample that directly.
    """

    ensemble = 8

    def prepare(self) -> None:
        noise = self.streams.normal(self.problem.horizon, self.memory.dim, self.ensemble)
        self.noise = self.alpha * self.memory.draws(noise)

    def value(self, h: int, w: Array) -> Array:
        members = [self.memory.linear(w + self.noise[:, h, :, j]) for j in range(self.ensemble)]
        return np.asarray(np.clip(np.max(members, axis=0), 0.0, self.problem.horizon - h))
