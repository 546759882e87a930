"""NN-UCB (Yang et al., 2020): optimism in the tangent space of a whole network."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from critex.bonus import Gram
from critex.theory.memory import Counts
from critex.theory.networks import Network
from critex.theory.planning import Episode, Streams
from critex.theory.problems import Array, Problem


class NNUCB:
    """Q_h = min(f(s,a|W_h) − f(s,a|W_h⁰) + α√(gᵀΛ_h⁻¹g), H − h + 1), g = ∇_W f, Λ_h = λI + Σgg at each visit.

    W_h takes `steps` gradient steps per episode on the mean squared error plus λ‖W − W⁰‖²/m. Λ_h has as many rows as
    the network has parameters, so networks are small: two layers, 2(n + A) → `hidden` → 1, of which the first is trained.
    """

    hidden, steps, rate = 8, 8, 0.5

    def __init__(self, problem: Problem, streams: Streams, alpha: float, ridge: float = 1.0) -> None:
        self.problem, self.alpha, self.ridge = problem, alpha, ridge
        x = problem.inputs()
        self.x = torch.from_numpy(x[:, :, : x.shape[-1] // 2] * 2**0.5).flatten(0, 1)  # [nA, n + A], ‖x‖ = 1
        self.shape = (len(streams), problem.horizon, problem.states, problem.actions)
        network = Network(streams, problem.horizon, (self.x.shape[1], self.hidden, 1))
        self.w, self.head = network.weights[0].detach(), network.weights[1].detach().sign() / self.hidden**0.5
        self.w0 = self.w.clone()
        self.f0 = ((self.x @ self.w0).relu() @ self.head)[..., 0]  # [S, H, nA]
        self.gram = Gram(self.x.shape[1] * self.hidden, ridge=ridge, memories=len(streams) * problem.horizon)
        self.counts, self.episodes = Counts(problem, len(streams)), 0

    def tangent(self) -> Tensor:
        """g = ∇_W f(s,a|W) of every pair, [S, H, nA, p]: x in the columns of the active units, times their head."""
        active = (self.x @ self.w > 0) * self.head[..., 0].unsqueeze(-2)  # [S, H, nA, hidden]
        out: Tensor = (self.x.unsqueeze(-1) * active.unsqueeze(-2)).flatten(-2)
        return out

    def q(self) -> Array:
        """Fit W_h backwards to the targets of Q_{h+1}, then add the width, [S, H, n, A]."""
        g, following = self.tangent(), np.zeros((self.shape[0], self.problem.states))
        inverse = self.gram.inverse().reshape(*self.shape[:2], g.shape[-1], g.shape[-1])
        width = ((g @ inverse) * g).sum(-1).clamp_min(0.0).sqrt().numpy().reshape(self.shape)
        q = np.empty(self.shape)
        for h in reversed(range(self.problem.horizon)):
            self._fit(h, torch.from_numpy(self.counts.targets(h, following)).flatten(1))
            fitted = ((self.x @ self.w[:, h]).relu() @ self.head[:, h])[..., 0] - self.f0[:, h]
            mean = fitted.numpy().reshape(q[:, h].shape)
            q[:, h] = np.minimum(mean + self.alpha * width[:, h], self.problem.horizon - h)
            following = q[:, h].max(-1)
        return q

    def _fit(self, h: int, targets: Tensor) -> None:
        """Gradient steps on Σ(f − f⁰ − y)² + λ‖W − W⁰‖², over the number of episodes."""
        if not self.episodes:
            return
        visits = torch.from_numpy(self.counts.visits[:, h]).flatten(1)
        w, head = self.w[:, h], self.head[:, h]
        for _ in range(self.steps):
            unit = self.x @ w  # [S, nA, hidden]
            error = visits * ((unit.relu() @ head)[..., 0] - self.f0[:, h]) - targets
            slope = (unit > 0) * head.transpose(-1, -2) * error.unsqueeze(-1)
            w -= self.rate / self.episodes * (self.x.T @ slope + self.ridge * (w - self.w0[:, h]))

    def update(self, episode: Episode) -> None:
        """Count an episode of each seed, and add its tangents to Λ."""
        self.counts.add(episode)
        self.episodes += 1
        pair = torch.from_numpy(episode.states[:, :-1] * self.problem.actions + episode.actions)
        g = self.tangent().gather(2, pair[:, :, None, None].expand(-1, -1, 1, self.gram.dim))
        self.gram.observe(g.reshape(-1, self.gram.dim))
