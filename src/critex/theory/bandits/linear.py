"""LinUCB and LinTS, and the ridge regression of rewards on features that all bandit algorithms share."""

from __future__ import annotations

import numpy as np

from critex.bonus import Gram
from critex.theory.bandits.problems import Bandit
from critex.theory.planning import Streams
from critex.theory.problems import Array, Integers


class Linear:
    """A = λI + Σφφᵀ, b = Σrφ, θ = A⁻¹b for each seed; here φ = x."""

    def __init__(self, bandit: Bandit, streams: Streams, alpha: float, ridge: float = 1.0) -> None:
        self.bandit, self.streams, self.alpha = bandit, streams, alpha
        self.dim = self.feature_dim()
        self.gram = Gram(self.dim, ridge=ridge, memories=len(streams))
        self.b = np.zeros((len(streams), self.dim))
        self.potential = np.zeros((len(streams), 1))  # Σ min(1, φᵀA⁻¹φ)

    def feature_dim(self) -> int:
        """Length of φ."""
        return self.bandit.dim

    def phi(self, x: Array) -> Array:
        """φ(x), [S, rows, dim]."""
        return x

    def index(self, phi: Array, theta: Array, inverse: Array) -> Array:
        """The index by which arms are compared, [S, arms]."""
        raise AssertionError(f"{type(self).__name__} does not define how it compares arms")

    def choose(self, x: Array) -> Integers:
        """The arm with the largest index, [S]."""
        inverse = self.gram.inverse().numpy()
        theta = np.matmul(inverse, self.b[:, :, None])
        return np.asarray(self.index(self.phi(x), theta, inverse).argmax(-1))

    def update(self, x: Array, reward: Array) -> None:
        """A ← A + φφᵀ and b ← b + rφ."""
        phi = self.phi(x[:, None])[:, 0]
        self.potential[:, 0] += np.minimum(self.gram.observe(phi).numpy(), 1.0)
        self.b += reward[:, None] * phi


class LinUCB(Linear):
    """Li et al. (2010), Chu et al. (2011): argmax_a θᵀφ + α√(φᵀA⁻¹φ)."""

    def index(self, phi: Array, theta: Array, inverse: Array) -> Array:
        square = (np.matmul(phi, inverse) * phi).sum(-1)
        return np.asarray(np.matmul(phi, theta)[:, :, 0] + self.alpha * np.sqrt(np.maximum(square, 0.0)))


class LinTS(Linear):
    """Agrawal and Goyal (2013): argmax_a (θ + αξ)ᵀφ with one ξ ~ N(0, A⁻¹) for all arms."""

    def index(self, phi: Array, theta: Array, inverse: Array) -> Array:
        noise = np.matmul(np.linalg.cholesky(inverse), self.streams.normal(self.dim, 1))
        return np.asarray(np.matmul(phi, theta + self.alpha * noise)[:, :, 0])
