"""What algorithms for continuous actions share: the critic, the range of actions, slow target networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.errors import UserError
from critex.networks.gradient import input_gradient, parameter_gradients, relu_layers, trace
from critex.networks.mlp import Flatten, ReLU, mlp


class Critic(nn.Module):
    """Q(s,a) = θᵀφ(s,a), or several such numbers of one φ."""

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_dim: int,
        hidden: tuple[int, ...],
        activation: Callable[[], nn.Module] = ReLU,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        self.flatten = Flatten(observation_space)
        self.body = mlp([self.flatten.dim + action_dim, *hidden], activation)  # φ
        self.head = nn.Linear(hidden[-1], outputs)  # θ
        if activation is ReLU:
            self.layers = relu_layers(self.body, self.head)  # for gradients by hand

    def inputs(self, obs: Tree, action: Tensor) -> Tensor:
        """What the first layer is given, [..., o + a]."""
        return torch.cat([self.flatten.forward(obs), action], dim=-1)

    def embed(self, obs: Tree, action: Tensor) -> Tensor:
        """φ(s,a), [..., hidden[-1]]. One row at a time, calling a module would take as long as its arithmetic."""
        return self.body.forward(self.inputs(obs, action))

    def forward(self, obs: Tree, action: Tensor) -> Tensor:
        """Q(s,a), [...]; with several outputs [..., outputs]."""
        q = F.linear(self.embed(obs, action), self.head.weight, self.head.bias)
        return q.squeeze(-1) if self.head.out_features == 1 else q


@torch.no_grad()
def regression(
    critics: tuple[Critic, ...], obs: Tree, action: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """L = Σ mean (Q − y)² over the critics; Q₁ [B]; and the gradient of L for the parameters of all critics."""
    x = critics[0].inputs(obs, action)
    q, losses, gradients = [], [], []
    for critic in critics:
        seen = trace(critic.layers, x)
        q.append(seen[-1].squeeze(-1))
        error = q[-1] - y
        losses.append(error.dot(error) / len(y))
        gradients += parameter_gradients(critic.layers, seen, (2 / len(y) * error).unsqueeze(-1))
    return torch.stack(losses).sum(), q[0], gradients


@torch.no_grad()
def smallest(critics: tuple[Critic, ...], obs: Tree, action: Tensor) -> tuple[Tensor, Tensor]:
    """min Q(s,a) over the critics, [B], and its slope ∂ min Q/∂a, [B, a]: each row's through its own critic alone."""
    x, columns = critics[0].inputs(obs, action), slice(-action.shape[-1], None)
    seen = [trace(critic.layers, x) for critic in critics]
    if len(critics) == 1:
        return seen[0][-1].squeeze(-1), input_gradient(critics[0].layers, seen[0], columns)
    q, chosen = torch.cat([s[-1] for s in seen], dim=-1).min(-1)
    slope = torch.empty_like(action)
    for i, critic in enumerate(critics):
        rows = (chosen == i).nonzero().squeeze(-1)
        slope.index_copy_(0, rows, input_gradient(critic.layers, seen[i], columns, rows))
    return q, slope


def action_range(space: gym.Space[Any]) -> tuple[Tensor, Tensor]:
    """(scale, centre) [a] with which [−1, 1] becomes the range of a space of continuous actions."""
    if (
        not isinstance(space, gym.spaces.Box)
        or len(space.shape) != 1
        or not np.issubdtype(space.dtype, np.floating)
    ):
        raise UserError(
            f"this algorithm needs continuous actions, a vector of floats; the environment has {space}"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UserError(
            f"this algorithm needs bounded actions, the environment has {space}; wrap it to rescale them"
        )
    low, high = (torch.as_tensor(bound, dtype=torch.get_default_dtype()) for bound in (space.low, space.high))
    return (high - low) / 2, (high + low) / 2


@torch.no_grad()
def polyak_(target: list[Tensor], source: list[Tensor], tau: float) -> None:
    """θ̄ ← (1 − τ)θ̄ + τθ, in place, all tensors in one call."""
    torch._foreach_lerp_(target, source, tau)
