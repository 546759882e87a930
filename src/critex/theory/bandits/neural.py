"""Neural-LinUCB and Neural-LinTS, on which CAE is based: a learned φ(x|W) under ridge regression."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from critex.theory.bandits.linear import Linear, LinTS, LinUCB
from critex.theory.bandits.problems import Bandit
from critex.theory.networks import Network, descend, in_unit_ball
from critex.theory.planning import Streams
from critex.theory.problems import Array


class NeuralLinear(Linear):
    """Every `period` rounds W takes `steps` gradient steps on the mean of |vᵀφ(x|W) − r|² over all rounds.

    The readout v is θ, held fixed, or the network's own last layer, which is trained as well.
    """

    width, hidden, period, steps, rate = 16, 64, 50, 20, 0.5

    def __init__(self, bandit: Bandit, streams: Streams, alpha: float, ridge: float = 1.0) -> None:
        super().__init__(bandit, streams, alpha, ridge)
        self.network = Network(streams, 1, (2 * bandit.dim, self.hidden, self.width))
        self.contexts: list[Array] = []
        self.rewards: list[Array] = []

    def feature_dim(self) -> int:
        return self.width

    def phi(self, x: Array) -> Array:
        with torch.no_grad():
            return self._embed(x).numpy()

    def _embed(self, x: Array) -> Tensor:
        """φ of (x; x)/√2, as Assumption 1 requires: [S, rows, d] → [S, rows, width], ‖φ‖ ≤ 1."""
        doubled = torch.from_numpy(np.concatenate([x, x], -1) / 2**0.5)
        return in_unit_ball(self.network(doubled[:, None]))[:, 0]

    def readout(self) -> Tensor:
        """v, [S, width, 1]."""
        return self.gram.inverse() @ torch.from_numpy(self.b).unsqueeze(-1)

    def update(self, x: Array, reward: Array) -> None:
        super().update(x, reward)
        self.contexts.append(x)
        self.rewards.append(reward)
        if len(self.rewards) % self.period == 0:
            self.train(np.stack(self.contexts, 1), np.stack(self.rewards, 1))

    def train(self, x: Array, reward: Array) -> None:
        """Gradient steps on all rounds, [S, t, d] and [S, t]."""
        v, y = self.readout(), torch.from_numpy(reward)
        weights = [*self.network.weights, *([v] if v.requires_grad else [])]
        for _ in range(self.steps):
            error = (self._embed(x) @ v).squeeze(-1) - y
            descend((error**2).mean(-1).sum(), weights, self.rate)


class NeuralLinUCB(NeuralLinear, LinUCB):
    """Xu et al. (2022): W is trained with θ fixed. A and b keep the φ of the time of the pull, as in Algorithm 3."""


class NeuralLinTS(NeuralLinear, LinTS):
    """Riquelme et al. (2018): W is trained together with its own last layer.

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
