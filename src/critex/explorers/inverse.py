"""The inverse-dynamics network: which action led from s to s'? CAE+, E3B, ICM and RIDE learn from it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree, tree_map


def orthogonal(layer: nn.Linear, gain: float = math.sqrt(2)) -> nn.Linear:
    """The layer with orthogonal weights of that gain and no bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class InverseDynamics(nn.Module):
    """p(a | s, s') = f̄(e, e') of two state embeddings [..., width], trained by −log p(a).

    Discrete actions: softmax over `action_dim` actions. Continuous ones: N(μ(e, e'), diag σ²) with a learned σ.
    """

    def __init__(self, width: int, action_dim: int, *, discrete: bool, hidden: int) -> None:
        super().__init__()
        self.discrete = discrete
        self.body = orthogonal(nn.Linear(2 * width, hidden))
        self.head = orthogonal(nn.Linear(hidden, action_dim), gain=1.0)
        if not discrete:
            self.log_std = nn.Parameter(torch.zeros(action_dim))

    def forward(self, embedding: Tensor, next_embedding: Tensor, action: Tensor) -> Tensor:
        """−log p(action), [...]."""
        out: Tensor = self.head(F.relu(self.body(torch.cat([embedding, next_embedding], dim=-1))))
        if self.discrete:
            return -out.log_softmax(-1).gather(-1, action.long().reshape(*out.shape[:-1], 1)).squeeze(-1)
        squares = ((action.reshape(out.shape) - out) / self.log_std.exp()).square()
        return (0.5 * squares + self.log_std + 0.5 * math.log(2 * math.pi)).sum(-1)


def follow(rollout: Transition) -> Tree:
    """The observation after each one in a rollout [T, N], whether or not an episode ended in between."""
    return tree_map(lambda obs, after: torch.cat([obs[1:], after[-1:]]), rollout.obs, rollout.next_obs)
