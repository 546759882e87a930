"""LSVI-UCB (Jin et al., 2020): optimism by a confidence width."""

from __future__ import annotations

import numpy as np

from critex.theory.peers.lsvi import LSVI
from critex.theory.problems import Array


class LSVIUCB(LSVI):
    """Q_h = min(φᵀw_h + α√(φᵀA_h⁻¹φ), H)."""

    def prepare(self) -> None:
        self.bonus = self.alpha * self.memory.width()  # [S, H, n, A]

    def value(self, h: int, w: Array) -> Array:
        return np.minimum(self.memory.linear(w) + self.bonus[:, h], self.problem.horizon)
