"""Sufficient statistics of all episodes. States are finite, so sums suffice and no episode is stored."""

from __future__ import annotations

import numpy as np

from critex.bonus import Gram
from critex.theory.planning import Episode
from critex.theory.problems import Array, Problem


class Counts:
    """Visits N_h(s,a,s') and rewards: every loss over all stored episodes is a function of these.

    Σ_t (f(s^t,a^t) − r^t − V(s'^t))² has the gradient Σ_{s,a} 2 (n f − y) ∇f, with n visits and a sum y of targets.
    """

    def __init__(self, problem: Problem, seeds: int) -> None:
        shape = (seeds, problem.horizon, problem.states, problem.actions)
        self.visits, self.rewards = np.zeros(shape), np.zeros(shape)
        self.nexts = np.zeros((*shape, problem.states))

    def add(self, episode: Episode) -> None:
        """Count an episode of each seed."""
        seed, step = np.ogrid[: len(episode.actions), : episode.actions.shape[1]]
        s, a = episode.states[:, :-1], episode.actions
        self.visits[seed, step, s, a] += 1
        self.rewards[seed, step, s, a] += episode.rewards
        self.nexts[seed, step, s, a, episode.states[:, 1:]] += 1

    def targets(self, h: int, value: Array) -> Array:
        """y(s,a) = Σ_t r^t + V(s'^t) over the visits of (s,a) at step h, for V [S, n]: [S, n, A]."""
        following = np.matmul(self.nexts[:, h], value[:, None, :, None])[..., 0]
        return np.asarray(self.rewards[:, h] + following)


class Regression:
    """Ridge regression of r + V(s') on φ(s,a), for every seed and step.

    A_h = λI + Σφφᵀ is a `critex.bonus.Gram`; w_h = A_h⁻¹ Σφ(r + V(s')) for any V, since Σφ V(s') = (Σφ e_s'ᵀ) V.
    """

    def __init__(self, problem: Problem, seeds: int, ridge: float, phi: Array | None = None) -> None:
        self.phi = problem.phi if phi is None else phi  # [I, n, A, d]
        self.seeds, self.horizon, self.dim = seeds, problem.horizon, self.phi.shape[-1]
        self.gram = Gram(self.dim, ridge=ridge, memories=seeds * problem.horizon)
        self.rewards = np.zeros((seeds, self.horizon, self.dim))  # Σφr
        self.nexts = np.zeros((seeds, self.horizon, self.dim, problem.states))  # Σφe_s'ᵀ
        self.potential = np.zeros((seeds, self.horizon))  # Σ min(1, φᵀA⁻¹φ)
        self._flat = self.phi.reshape(len(self.phi), 1, -1, self.dim)  # [I, 1, nA, d]
        self._pairs = self.phi.shape[1:3]
        self._inverse: Array | None = None

    def add(self, episode: Episode) -> Array:
        """Learn from an episode of each seed; returns the features of its steps, [S, H, d]."""
        seed, step = np.ogrid[: self.seeds, : self.horizon]
        instance = seed[: len(self.phi)]
        phi = self.phi[instance, episode.states[:, :-1], episode.actions]
        new = self.gram.observe(phi.reshape(-1, self.dim)).numpy()
        self.potential += np.minimum(new, 1.0).reshape(self.seeds, self.horizon)
        self.rewards += phi * episode.rewards[..., None]
        self.nexts[seed, step, :, episode.states[:, 1:]] += phi
        self._inverse = None
        return np.asarray(phi)

    @property
    def inverse(self) -> Array:
        """A_h⁻¹, [S, H, d, d]."""
        if self._inverse is None:
            self._inverse = self.gram.inverse().numpy().reshape(self.seeds, self.horizon, self.dim, self.dim)
        return self._inverse

    def weights(self, h: int, value: Array) -> Array:
        """w_h = A_h⁻¹ Σφ(r + V(s')) for V [S, n]: [S, d]."""
        b = self.rewards[:, h] + np.matmul(self.nexts[:, h], value[:, :, None])[:, :, 0]
        return np.asarray(np.matmul(self.inverse[:, h], b[:, :, None])[:, :, 0])

    def linear(self, w: Array) -> Array:
        """φ(s,a)ᵀw for w [S, d]: [S, n, A]; for J weights at once [S, d, J]: [S, n, A, J]."""
        values = np.matmul(self._flat[:, 0], w.reshape(self.seeds, self.dim, -1))  # [S, nA, J]
        return np.asarray(values.reshape(self.seeds, *self._pairs, *w.shape[2:]))

    def width(self) -> Array:
        """√(φᵀA_h⁻¹φ) of every pair, [S, H, n, A]."""
        square = (np.matmul(self._flat, self.inverse) * self._flat).sum(-1)
        return np.asarray(np.sqrt(np.maximum(square, 0.0)).reshape(self.seeds, self.horizon, *self._pairs))

    def draws(self, noise: Array) -> Array:
        """ξ ~ N(0, A_h⁻¹) from standard normal noise [S, H, d, J], in the same shape."""
        return np.asarray(np.matmul(np.linalg.cholesky(self.inverse), noise))
