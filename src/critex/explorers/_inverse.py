"""The inverse-dynamics network: which action led from s to s'? CAE+, E3B, ICM and RIDE learn from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.networks.policies import orthogonal
from critex.ranges import NonNegative, Options


@dataclass(frozen=True)
class InverseConfig(Options):
    """Options of the inverse dynamics."""

    cross_episode_ends: bool = False
    """Pair the last state of an episode with the first state of the next one, as the released code does. Needs an
    algorithm that learns from rollouts in time order. Otherwise s' is the true final observation."""
    inverse_action: Literal["executed", "sampled"] = "executed"
    """Continuous actions: predict the executed action, clipped to its range, or the action sampled by the policy.
    They differ only for PPO."""
    min_std: NonNegative = 0.1
    """Continuous actions: lower bound on the σ of the inverse dynamics, in units of half the action range."""


class InverseDynamics(nn.Module):
    """p(a | s, s') = f̄(e, e') of two state embeddings [..., width], trained by −log p(a).

    Discrete actions: softmax over `action_dim` actions. Continuous ones: N(μ(e, e'), diag σ²) with a learned σ.
    Without a lower bound on σ, actions that are easy to predict would let −log p fall, and its gradient grow, without end.
    """

    low: Tensor
    high: Tensor

    _min_log_std: Tensor

    def __init__(self, width: int, embedding: Embedding, hidden: int, options: InverseConfig) -> None:
        super().__init__()
        self.discrete = embedding.discrete
        self.body = orthogonal(2 * width, hidden)
        self.head = orthogonal(hidden, embedding.action_dim, gain=1.0)
        if not self.discrete:
            self.log_std = nn.Parameter(torch.zeros(embedding.action_dim))
            low, high = embedding.action_bounds()  # [a] each, infinite if there is no bound
            half = torch.where((high - low).isfinite(), (high - low) / 2, 1.0)
            self.register_buffer("_min_log_std", (options.min_std * half).log(), persistent=False)
            if options.inverse_action == "sampled":
                low, high = torch.full_like(low, -torch.inf), torch.full_like(high, torch.inf)
            self.register_buffer("low", low, persistent=False)
            self.register_buffer("high", high, persistent=False)
        self.to(embedding.device)

    def forward(self, embedding: Tensor, next_embedding: Tensor, action: Tensor) -> Tensor:
        """−log p(action), [...]."""
        out: Tensor = self.head(F.relu(self.body(torch.cat([embedding, next_embedding], dim=-1))))
        if self.discrete:
            return -out.log_softmax(-1).gather(-1, action.long().reshape(*out.shape[:-1], 1)).squeeze(-1)
        with torch.no_grad():  # projected, so that σ can still rise from the bound
            torch.maximum(self.log_std, self._min_log_std, out=self.log_std.data)
        executed = action.reshape(out.shape).clamp(self.low, self.high)
        squares = ((executed - out) / self.log_std.exp()).square()
        return (0.5 * squares + self.log_std + 0.5 * math.log(2 * math.pi)).sum(-1)


def paired(rollout: Transition, options: InverseConfig) -> Transition:
    """A rollout [T, N] in which `following` finds the observations that the inverse dynamics learns from.

    With `cross_episode_ends` these are the following ones in the rollout, even if an episode ended in between. What
    follows the last step is not in the rollout, so that step keeps its true next observation.
    """
    if not options.cross_episode_ends:
        return rollout
    after = tree_map(lambda obs, last: torch.cat([obs[1:], last[-1:]]), rollout.obs, rollout.next_obs)
    return replace(rollout, info={**rollout.info, "following": after})


def following(batch: Transition) -> Tree:
    """s' for the inverse dynamics: what `paired` has set, else the true next observation."""
    tree: Tree = batch.info.get("following", batch.next_obs)
    return tree
