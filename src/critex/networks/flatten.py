"""Flatten observations to vectors, the input of a multi-layer perceptron."""

from __future__ import annotations

from math import prod
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.errors import UserError

MAX_ENTRIES = 4096
"""A box with more entries is an image, or needs a wrapper; one linear layer on it would be mostly noise."""
MAX_VECTOR = 10_000
"""The same for a box that is a vector already: the one-hot cell of DeepSea-100 has this many."""
MAX_RANGE = 255
"""Integers with a wider range are assumed to be ids (of glyphs, of items), whose magnitude means nothing."""


class Flatten(nn.Module):
    """Observations as float vectors [..., dim], without parameters.

    Integers of Discrete and MultiDiscrete spaces become one-hot. The integers of a box are divided by the largest
    magnitude that the space allows, so that bytes lie in [0, 1]. Real numbers are left unchanged.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.dim: int
        self._ndim = len(space.shape or ())
        self._scale = 1.0
        self._categories: list[tuple[int, int]] = []  # (first value, number of values) of each integer
        match space:
            case gym.spaces.Discrete():
                self._categories = [(int(space.start), int(space.n))]
            case gym.spaces.MultiDiscrete() if space.nvec.ndim == 1:
                self._categories = list(zip(space.start.tolist(), space.nvec.tolist(), strict=True))
            case gym.spaces.Box():
                _require_vector(space)
                if np.issubdtype(space.dtype, np.integer):
                    self._scale = 1.0 / max(abs(int(space.low.min())), abs(int(space.high.max())), 1)
            case gym.spaces.MultiBinary():
                pass
            case _:
                raise UserError(
                    f"observation space {space} is not supported here; Box, Discrete, MultiDiscrete, MultiBinary and "
                    "dicts of them are"
                )
        self.dim = sum(n for _, n in self._categories) if self._categories else prod(space.shape or ())

    def forward(self, obs: Tree) -> Tensor:
        assert isinstance(obs, Tensor)
        dtype = torch.get_default_dtype()
        if self._categories:
            columns = obs.unsqueeze(-1) if self._ndim == 0 else obs
            codes = [
                F.one_hot(columns[..., i].long() - start, n) for i, (start, n) in enumerate(self._categories)
            ]
            return torch.cat(codes, dim=-1).to(dtype)
        vector = (obs if self._ndim == 1 else obs.reshape(*obs.shape[: obs.ndim - self._ndim], -1)).to(dtype)
        return vector if self._scale == 1.0 else vector * self._scale


def _require_vector(space: gym.spaces.Box) -> None:
    """Refuse boxes that are not vectors of quantities."""
    entries, most = prod(space.shape), MAX_VECTOR if len(space.shape) == 1 else MAX_ENTRIES
    if entries > most:
        raise UserError(
            f"observations of shape {space.shape} would be a vector of {entries:,} numbers, more than {most:,}; "
            "wrap the environment to give an image [height, width, channels] or a shorter vector"
        )
    if np.issubdtype(space.dtype, np.integer):
        require_small_integers(space)


def require_small_integers(space: gym.spaces.Box) -> None:
    """Refuse integers whose range is so wide that a division by the largest would leave nothing of most of them."""
    low, high = int(space.low.min()), int(space.high.max())
    if high - low > MAX_RANGE:
        raise UserError(
            f"observations are integers from {low:,} to {high:,}; wrap the environment to give them as floats if "
            "they are quantities, as MultiDiscrete or one-hot if they are ids"
        )
