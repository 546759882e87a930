"""Algorithm 3 of the paper's appendix: DQN enhanced with CAE, in the form that the theorem analyses."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from critex.bonus import Gram
from critex.theory.memory import Counts
from critex.theory.networks import Network, descend, in_unit_ball
from critex.theory.planning import Episode, Streams
from critex.theory.problems import Array, Problem


class CAE:
    """Q_h = θ_hᵀφ(·|W_h) + αβ_h, with separate A_h, b_h, θ_h and W_h for every step h; for all seeds at once.

    φ(·|W_h) maps (s; a; s; a), a unit vector of D = 2(n + A) entries, to D features with ‖φ‖ ≤ 1. Within an episode each
    step h changes only its own parameters, and the targets Q̄ are fixed until the episode ends. All steps can therefore be
    updated together after the episode, with the same result.

    Args:
        alpha: the exploration coefficient; `bound.theorem_alpha` is the theorem's.
        step_size: η of the gradient step on W over all stored episodes; `bound.theorem_step_size` is the theorem's.
        strategy: the algorithm's red lines (ucb) or blue lines (thompson).
        refit: recompute A_h and b_h from all episodes with the current φ and Q̄. Not in the algorithm, whose sums keep
            the features and targets of the time of the visit; the counterpart of `rebuild_every` in deep RL.
    """

    layers, hidden = 2, 64

    def __init__(
        self,
        problem: Problem,
        streams: Streams,
        alpha: float,
        ridge: float = 1.0,
        *,
        strategy: Literal["ucb", "thompson"] = "ucb",
        step_size: float = 1e-5,
        hidden: int = hidden,
        gamma: float = 1.0,
        refit: bool = False,
    ) -> None:
        self.problem, self.streams, self.alpha = problem, streams, alpha
        self.strategy, self.step_size, self.gamma, self.refit = strategy, step_size, gamma, refit
        self.x = torch.from_numpy(problem.inputs()).flatten(0, 1)  # [nA, D]
        self.dim, self.hidden, seeds, H = self.x.shape[1], hidden, len(streams), problem.horizon
        self.shape = (seeds, H, problem.states, problem.actions)
        self.gram = Gram(self.dim, ridge=ridge, memories=seeds * H)  # A = λI
        self.inverse = torch.eye(self.dim, dtype=torch.float64).expand(seeds, H, -1, -1) / ridge  # A⁻¹
        self.b = torch.zeros(seeds, H, self.dim, dtype=torch.float64)
        self.theta = torch.from_numpy(streams.normal(H, self.dim) / self.dim)
        self.network = Network(streams, H, (self.dim, hidden, self.dim))
        self.counts = Counts(problem, seeds)
        self.potential = np.zeros((seeds, H))  # Σ min(1, φᵀA⁻¹φ)
        self.error = np.zeros(seeds)  # ‖q − q̃‖²
        self.features = self.phi()
        self.Q = self.linear(self.features).detach().numpy().reshape(self.shape)

    def phi(self) -> Tensor:
        """φ(s,a|W_h) of every pair, [S, H, nA, D]."""
        return in_unit_ball(self.network(self.x))

    def linear(self, phi: Tensor) -> Tensor:
        """θ_hᵀφ, [S, H, nA]."""
        return (phi @ self.theta.unsqueeze(-1)).squeeze(-1)

    def q(self) -> Array:
        """Q_h^m(s,a), by which line 6 acts, [S, H, n, A]."""
        return self.Q

    def update(self, episode: Episode) -> None:
        """Lines 7 to 14 for an episode of each seed."""
        self.counts.add(episode)
        following = np.zeros((*self.shape[:2], self.problem.states))  # 0 after the last step
        following[:, :-1] = self.gamma * self.Q[:, 1:].max(-1)  # γ max_a Q̄_{h+1}
        stored = self._stored(following)
        self._regress(episode, following, stored)
        self._train(*stored)
        self.features = self.phi()
        phi = self.features.detach()
        self.Q = (self.linear(phi) + self.alpha * self.bonus(phi)).numpy().reshape(self.shape)

    def _regress(self, episode: Episode, following: Array, stored: tuple[Tensor, Tensor]) -> None:
        """q = r + γ max Q̄(s'); A ← A + φφᵀ; b ← b + qφ; θ = A⁻¹b."""
        seed, step = np.ogrid[: self.shape[0], : self.shape[1]]
        s, a, s_next = episode.states[:, :-1], episode.actions, episode.states[:, 1:]
        target = episode.rewards + following[seed, step, s_next]
        self.error += ((target - self.Q[seed, step, s, a]) ** 2).sum(-1)
        pair = torch.from_numpy(s * self.problem.actions + a)[:, :, None, None].expand(-1, -1, 1, self.dim)
        every = self.features.detach()
        phi = every.gather(2, pair).squeeze(2)  # [S, H, D]
        new = self.gram.observe(phi.reshape(-1, self.dim)).numpy().reshape(self.shape[:2])
        self.potential += np.minimum(new, 1.0)
        self.b += torch.from_numpy(target).unsqueeze(-1) * phi
        if self.refit:
            self._refit(every, *stored)
        self.inverse = self.gram.inverse().reshape(*self.shape[:2], self.dim, self.dim)
        self.theta = (self.inverse @ self.b.unsqueeze(-1)).squeeze(-1)

    def _refit(self, phi: Tensor, visits: Tensor, targets: Tensor) -> None:
        self.b = (targets.unsqueeze(-2) @ phi).squeeze(-2)
        rows = visits.sqrt().unsqueeze(-1) * phi  # Σ φφᵀ over n visits = (√n φ)(√n φ)ᵀ
        for i, each in enumerate(rows.flatten(0, 1)):
            self.gram.rebuild(each, i)

    def _train(self, visits: Tensor, targets: Tensor) -> None:
        """W ← W − η∇L with L = Σ_t |θᵀφ(s^t,a^t|W) − r^t − γ max Q̄(s'^t)|²; θ is held constant."""
        value = self.linear(self.features)
        loss = (visits * value**2 - 2 * targets * value).sum()  # L up to a constant
        descend(loss, self.network.weights, self.step_size)

    def _stored(self, following: Array) -> tuple[Tensor, Tensor]:
        """Visits and sums of targets of every pair, [S, H, nA] each."""
        targets = [self.counts.targets(h, following[:, h]) for h in range(self.shape[1])]
        visits, sums = (torch.from_numpy(x).flatten(2) for x in (self.counts.visits, np.stack(targets, 1)))
        return visits, sums

    def bonus(self, phi: Tensor) -> Tensor:
        """β = √(φᵀA⁻¹φ), or β = Δθᵀφ with one Δθ ~ N(0, A⁻¹) for each seed and step: [S, H, nA]."""
        if self.strategy == "ucb":
            return ((phi @ self.inverse) * phi).sum(-1).clamp_min(0.0).sqrt()
        return (phi @ self.draw().unsqueeze(-1)).squeeze(-1)

    def draw(self) -> Tensor:
        """Δθ ~ N(0, A⁻¹), [S, H, D]."""
        noise = torch.from_numpy(self.streams.normal(self.shape[1], self.dim, 1))
        out: Tensor = (torch.linalg.cholesky(self.inverse) @ noise).squeeze(-1)
        return out
