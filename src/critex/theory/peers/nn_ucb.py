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
    """Q_h = min(f(s,a|W_h) + α√(gᵀΛ_h⁻¹g), H − h + 1)₊ with g = ∇_W f(s,a|W_h).

    At the start of an episode, for h = H … 1: W_h minimises Σ(f − r − max Q_{h+1})² + λ‖W − W⁰‖² over all episodes, here
    by `steps` gradient steps from its last value; then Λ_h ← Λ_h + ggᵀ for the last visit, under the new W_h.

    f is a network with two layers, n + A → `hidden` → 1, of which only the first is trained, minus its value at W⁰. In the
    original f(·|W⁰) = 0 because every unit has a copy with the opposite sign, which gives the same gᵀΛ⁻¹g at W⁰ with
    twice the parameters. Λ_h has a row for every parameter, so `hidden` is small.
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
        dim = self.x.shape[1] * self.hidden
        self.grams = [Gram(dim, ridge=ridge, memories=len(streams)) for _ in range(problem.horizon)]
        self.counts, self.episodes = Counts(problem, len(streams)), 0
        self.last: Tensor | None = None  # the pairs of the last episode, [S, H]

    def q(self) -> Array:
        """Fit, then bound, for h = H … 1: [S, H, n, A]."""
        q, following = np.empty(self.shape), np.zeros((self.shape[0], self.problem.states))
        for h in reversed(range(self.problem.horizon)):
            self._fit(h, torch.from_numpy(self.counts.targets(h, following)).flatten(1))
            g = self.tangent(h)
            if self.last is not None:
                pair = self.last[:, h, None, None].expand(-1, -1, g.shape[-1])
                self.grams[h].observe(g.gather(1, pair)[:, 0])
            bonus = self.alpha * ((g @ self.grams[h].inverse()) * g).sum(-1).clamp_min(0.0).sqrt()
            bound = (self._value(h) + bonus).clamp(0.0, self.problem.horizon - h)
            q[:, h] = bound.numpy().reshape(q[:, h].shape)
            following = q[:, h].max(-1)
        self.last = None
        return q

    def _value(self, h: int) -> Tensor:
        """f(s,a|W_h) of every pair, [S, nA]."""
        out: Tensor = ((self.x @ self.w[:, h]).relu() @ self.head[:, h])[..., 0] - self.f0[:, h]
        return out

    def tangent(self, h: int) -> Tensor:
        """g = ∇_W f(s,a|W_h) of every pair, [S, nA, p]: x in the columns of the active units, times their head."""
        active = (self.x @ self.w[:, h] > 0) * self.head[:, h, :, 0].unsqueeze(-2)  # [S, nA, hidden]
        out: Tensor = (self.x.unsqueeze(-1) * active.unsqueeze(-2)).flatten(-2)
        return out

    def _fit(self, h: int, targets: Tensor) -> None:
        """Gradient steps on the loss, divided by the number of episodes."""
        if not self.episodes:
            return
        visits = torch.from_numpy(self.counts.visits[:, h]).flatten(1)
        w, head = self.w[:, h], self.head[:, h]
        for _ in range(self.steps):
            active = self.x @ w > 0  # [S, nA, hidden]
            error = visits * self._value(h) - targets
            slope = active * head.transpose(-1, -2) * error.unsqueeze(-1)
            w -= self.rate / self.episodes * (self.x.T @ slope + self.ridge * (w - self.w0[:, h]))

    def update(self, episode: Episode) -> None:
        """Count an episode of each seed."""
        self.counts.add(episode)
        self.episodes += 1
        self.last = torch.from_numpy(episode.states[:, :-1] * self.problem.actions + episode.actions)
