"""ACB (Ash et al., 2022): LSVI-UCB with a width estimated by regressions on pure noise."""

from __future__ import annotations

import numpy as np

from critex.theory.peers.lsvi_ucb import LSVIUCB


class ACB(LSVIUCB):
    """Q_h = min(φᵀw_h + α max_j |φᵀu_j|, H), where u_j is the ridge regression of fresh N(0, 1) targets on φ.

    With noise on the prior as well, u_j = A_h⁻¹(√λε₀ + Σφε) ~ N(0, A_h⁻¹): each φᵀu_j is N(0, φᵀA_h⁻¹φ), and the largest
    of many is seldom much smaller than the width. The noise is redrawn for every episode, so we sample u_j directly.
    """

    ensemble = 128

    def prepare(self) -> None:
        noise = self.memory.draws(self.streams.normal(self.problem.horizon, self.memory.dim, self.ensemble))
        largest = [np.abs(self.memory.linear(noise[:, h])).max(-1) for h in range(self.problem.horizon)]
        self.bonus = self.alpha * np.stack(largest, 1)
