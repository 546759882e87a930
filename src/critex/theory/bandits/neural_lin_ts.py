"""Neural-LinTS (Riquelme et al., 2018), on which CAE's Thompson variant is based."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from critex.theory.bandits.linear import Thompson
from critex.theory.bandits.neural import NeuralLinear
from critex.theory.bandits.problems import Bandit
from critex.theory.planning import Streams
from critex.theory.problems import Array


class NeuralLinTS(NeuralLinear, Thompson):
    """LinTS on φ(x|W), where W is trained together with its own last layer.

    After each training phase A and b are recomputed from all rounds under the new φ. The noise of the rewards is the
    constant α, where the original has an inverse-gamma posterior.
    """

    def __init__(self, bandit: Bandit, streams: Streams, alpha: float, ridge: float = 1.0) -> None:
        super().__init__(bandit, streams, alpha, ridge)
        self.last = torch.from_numpy(streams.normal(self.width, 1) / self.width**0.5).requires_grad_()

    def readout(self) -> Tensor:
        return self.last

    def train(self, x: Array, reward: Array) -> None:
        super().train(x, reward)
        phi = self.phi(x)  # [S, t, width]
        self.b = np.asarray(np.matmul(reward[:, None], phi)[:, 0])
        for i, rows in enumerate(phi):
            self.gram.rebuild(rows, i)
