"""Neural-LinTS (Riquelme et al., 2018), on which CAE's Thompson variant is based."""

from __future__ import annotations

import numpy as np

from critex.theory.bandits.linear import Thompson
from critex.theory.bandits.neural import NeuralLinear
from critex.theory.problems import Array


class NeuralLinTS(NeuralLinear, Thompson):
    """LinTS on φ(x|W). After each training phase A and b are recomputed from all rounds under the new φ."""

    def train(self, x: Array, reward: Array) -> None:
        super().train(x, reward)
        phi = self.phi(x)  # [S, t, width]
        self.b = np.asarray(np.matmul(reward[:, None], phi)[:, 0])
        for i, rows in enumerate(phi):
            self.gram.rebuild(rows, i if self.gram.memories > 1 else None)
