"""Multi-layer perceptrons, and observations as the flat vectors they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.errors import UserError

ReLU = partial(nn.ReLU, inplace=True)  # a linear layer does not need its output for the gradient


class MLP(nn.Sequential):
    """Linear layers, each followed by an activation; one call of Python instead of one per layer."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self._steps = [
            (linear.weight, linear.bias, activation.forward)
            for linear, activation in zip(layers[::2], layers[1::2], strict=True)
            if isinstance(linear, nn.Linear)
        ]

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] → [..., out]."""
        for weight, bias, activation in self._steps:
            x = activation(F.linear(x, weight, bias))
        return x


def mlp(sizes: Sequence[int], activation: Callable[[], nn.Module] = ReLU) -> MLP:
    """Linear layers sizes[0] → … → sizes[-1], each followed by the activation: an embedding, without its head."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), activation()]
    return MLP(*layers)


class Flatten(nn.Module):
    """Observations as float vectors [..., dim], without a parameter: integers one-hot, the entries of a dict in turn."""

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.dim: int
        self._entries: dict[str, Flatten] = {}
        self._ndim, self._sizes = 1, [0]
        match space:
            case gym.spaces.Dict():
                self._entries = {key: Flatten(child) for key, child in space.items()}
                self.dim = sum(entry.dim for entry in self._entries.values())
            case gym.spaces.Discrete():
                self.dim, self._ndim = int(space.n), 0
            case gym.spaces.MultiDiscrete() if space.nvec.ndim == 1:
                self._sizes = space.nvec.tolist()
                self.dim = sum(self._sizes)
            case gym.spaces.Box() | gym.spaces.MultiBinary():
                self.dim, self._ndim = prod(space.shape), len(space.shape)
            case _:
                raise UserError(
                    f"observation space {space} is not supported here; Box, Discrete, MultiDiscrete, MultiBinary and "
                    "dicts of them are"
                )

    def forward(self, obs: Tree) -> Tensor:
        if isinstance(obs, dict):
            return torch.cat([entry.forward(obs[key]) for key, entry in self._entries.items()], dim=-1)
        if self._ndim == 0:
            return F.one_hot(obs.long(), self.dim).to(torch.get_default_dtype())
        if self._sizes != [0]:
            parts = [F.one_hot(obs[..., i].long(), n) for i, n in enumerate(self._sizes)]
            return torch.cat(parts, dim=-1).to(torch.get_default_dtype())
        return (obs.flatten(-self._ndim) if self._ndim > 1 else obs).to(torch.get_default_dtype())
