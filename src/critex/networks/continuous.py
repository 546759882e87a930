"""Shared by the algorithms for continuous actions: the critic and the action range."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.errors import UserError
from critex.networks.encoder import encoder
from critex.networks.mlp import Activation, mlp


class Critic(nn.Module):
    """Q(s,a) = θᵀφ(s,a), or several such outputs from one φ."""

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_dim: int,
        hidden: tuple[int, ...],
        activation: Activation = "relu",
        layer_norm: bool = False,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        self.encode = encoder(observation_space)
        self.body = mlp([self.encode.dim + action_dim, *hidden], activation, layer_norm)  # φ
        self.head = nn.Linear(hidden[-1], outputs)  # θ

    def embed(self, obs: Tree, action: Tensor) -> Tensor:
        """φ(s,a), [..., hidden[-1]]."""
        phi: Tensor = self.body(torch.cat([self.encode(obs), action], dim=-1))
        return phi

    def forward(self, obs: Tree, action: Tensor) -> Tensor:
        """Q(s,a), [...]; with several outputs [..., outputs]."""
        q: Tensor = self.head(self.embed(obs, action))
        return q.squeeze(-1) if q.shape[-1] == 1 else q


def action_range(space: gym.Space[Any]) -> tuple[Tensor, Tensor]:
    """(scale, centre) [a] that map [−1, 1] to the range of a space of continuous actions."""
    if (
        not isinstance(space, gym.spaces.Box)
        or len(space.shape) != 1
        or not np.issubdtype(space.dtype, np.floating)
    ):
        raise UserError(
            f"this algorithm needs continuous actions, a vector of floats; the environment has {space}; "
            "use dqn, ppo or impala"
        )
    low, high = (torch.as_tensor(bound, dtype=torch.get_default_dtype()) for bound in (space.low, space.high))
    scale, centre = (high - low) / 2, (high + low) / 2
    if not (scale.isfinite().all() and centre.isfinite().all()):
        raise UserError(
            f"this algorithm needs bounded actions, the environment has {space}; wrap it to rescale them"
        )
    return scale, centre
