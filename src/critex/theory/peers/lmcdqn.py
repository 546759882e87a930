"""LMCDQN (Ishfaq et al., 2024), Adam variant: Langevin Monte Carlo instead of an exact posterior."""

from __future__ import annotations

import numpy as np

from critex.theory.memory import Counts
from critex.theory.planning import Episode, Streams
from critex.theory.problems import Array, Problem


class LMCDQN:
    """w ← w − η(g + a·m/(√v + ε)) + α√(2η)·N(0, I), `steps` times an episode, and Q_h = min(φᵀw_h, H − h + 1)₊.

    g is the gradient of the loss ½Σ(φᵀw − r − max Q_{h+1})² + ½λ‖w‖² over all episodes, m and v are its moving moments
    including g, without bias correction; w, m and v carry over from episode to episode. With a = 0 the stationary
    distribution is N(w_h, α²A_h⁻¹). η = 1/(4(λ + K)) after K episodes: A_h has no eigenvalue above λ + K.
    """

    steps, adam, beta1, beta2, epsilon = 16, 0.1, 0.9, 0.99, 1e-8

    def __init__(self, problem: Problem, streams: Streams, alpha: float, ridge: float = 1.0) -> None:
        self.problem, self.streams, self.alpha, self.ridge = problem, streams, alpha, ridge
        self.counts = Counts(problem, len(streams))
        self.episodes = 0
        self.phi = problem.phi.reshape(len(problem.phi), -1, problem.dim)  # [I, nA, d]
        shape = (len(streams), problem.horizon, problem.dim)
        self.w = alpha / ridge**0.5 * streams.normal(*shape[1:])  # the prior, N(0, α²/λ)
        self.mean, self.square = np.zeros(shape), np.zeros(shape)

    def q(self) -> Array:
        """Q_h(s,a) after the Langevin steps of this episode, [S, H, n, A]."""
        seeds, problem = len(self.streams), self.problem
        q = np.empty((seeds, problem.horizon, problem.states, problem.actions))
        following = np.zeros((seeds, problem.states))
        noise = self.streams.normal(problem.horizon, self.steps, problem.dim)
        for h in reversed(range(problem.horizon)):
            self._sample(h, self.counts.targets(h, following).reshape(seeds, -1), noise[:, h])
            linear = np.matmul(self.phi, self.w[:, h, :, None]).reshape(q[:, h].shape)
            q[:, h] = np.clip(linear, 0.0, problem.horizon - h)
            following = q[:, h].max(-1)
        return q

    def _sample(self, h: int, targets: Array, noise: Array) -> None:
        """Langevin steps of w_h on the loss with these sums of targets [S, nA]."""
        n = self.counts.visits[:, h].reshape(targets.shape)
        rate = 0.25 / (self.ridge + self.episodes)
        w, mean, square = self.w[:, h], self.mean[:, h], self.square[:, h]  # views, changed in place
        for j in range(self.steps):
            errors = n * np.matmul(self.phi, w[:, :, None])[:, :, 0] - targets
            g = np.matmul(errors[:, None], self.phi)[:, 0] + self.ridge * w
            mean += (1 - self.beta1) * (g - mean)
            square += (1 - self.beta2) * (g * g - square)
            w -= rate * (g + self.adam * mean / (np.sqrt(square) + self.epsilon))
            w += self.alpha * np.sqrt(2 * rate) * noise[:, j]

    def update(self, episode: Episode) -> None:
        """Count an episode of each seed."""
        self.counts.add(episode)
        self.episodes += 1
