"""LSVI-UCB (Jin et al., 2020): optimism by a confidence width."""

from __future__ import annotations

import numpy as np

from critex.theory.peers.lsvi import LSVI
from critex.theory.problems import Array


class LSVIUCB(LSVI):
    """Q_h = min(φᵀw_h + α√(φᵀA_h⁻¹φ), H − h + 1)."""

    def prepare(self) -> None:
        self.width = self.memory.width()

    def value(self, h: int, w: Array) -> Array:
        bonus = self.alpha * self.width[:, h]
        return np.minimum(self.memory.linear(w) + bonus, self.problem.horizon - h)
