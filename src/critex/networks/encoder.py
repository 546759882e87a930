"""Encode any observation as one vector: vectors unchanged, images by convolutions, dicts entry by entry."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.errors import UserError
from critex.networks.flatten import Flatten, require_small_integers
from critex.networks.nethack import NetHack, NetworkName, is_nethack

CHANNELS = (32, 64, 64)  # of the first, second and every later convolution
CELLS = 4  # convolve until no side is longer than this


def is_image(space: gym.Space[Any]) -> bool:
    """Whether a space is an image: a box of three dimensions, or of two dimensions of bytes (greyscale).

    Three dimensions are [C, H, W] if the first side is the shortest, else [H, W, C].
    """
    if not isinstance(space, gym.spaces.Box):
        return False
    bytes_ = space.dtype == np.uint8 and bool((space.high == 255).all())
    return len(space.shape) == 3 or (len(space.shape) == 2 and bytes_)


def is_flat(space: gym.Space[Any]) -> bool:
    """Whether a space is a vector or an integer, which the encoder passes on without parameters."""
    return not isinstance(space, gym.spaces.Dict) and not is_image(space)


def encoder(space: gym.Space[Any], nethack: NetworkName = "compact") -> Encoder:
    """The module that turns observations of a space into vectors [..., dim]; `nethack` is the size of NetHack's encoder."""
    match space:
        case gym.spaces.Dict() if is_nethack(space):
            return NetHack(space, nethack)
        case gym.spaces.Dict():
            return Entries(space)
        case gym.spaces.Box() if is_image(space):
            return Image(space)
    return Flatten(space)


class Image(nn.Module):
    """3×3 convolutions of stride 2, each followed by ReLU, until at most 4×4 cells are left; then flat, [..., dim].

    Integers are divided by the largest value that the space allows. A side that is too short for a convolution is
    padded.
    """

    def __init__(self, space: gym.spaces.Box) -> None:
        super().__init__()
        self.greyscale = len(space.shape) == 2
        shape = (*space.shape, 1) if self.greyscale else space.shape
        first, *others = shape
        self.channels_last = self.greyscale or first >= min(others)
        height, width, channels = shape if self.channels_last else (*shape[1:], first)
        integers = np.issubdtype(space.dtype, np.integer)
        if integers:
            require_small_integers(space)
        self.scale = 1.0 / float(max(space.high.max(), 1)) if integers else 1.0
        layers: list[nn.Module] = []
        while not layers or max(height, width) > CELLS:
            out = CHANNELS[min(len(layers) // 2, len(CHANNELS) - 1)]
            pad = [int(side < 3) for side in (height, width)]
            layers += [nn.Conv2d(channels, out, 3, stride=2, padding=(pad[0], pad[1])), nn.ReLU()]
            height, width = (
                (side + 2 * p - 3) // 2 + 1 for side, p in zip((height, width), pad, strict=True)
            )
            channels = out
        self.layers = nn.Sequential(*layers)
        self.dim = height * width * channels

    def forward(self, obs: Tree) -> Tensor:
        assert isinstance(obs, Tensor)
        image = obs.unsqueeze(-1) if self.greyscale else obs
        batch = image.shape[:-3]
        image = image.flatten(0, -4) if batch else image.unsqueeze(0)
        image = image.to(torch.get_default_dtype())
        if self.scale != 1.0:
            image = image * self.scale
        if self.channels_last:
            image = image.permute(0, 3, 1, 2)
        cells: Tensor = self.layers(image)
        return cells.permute(0, 2, 3, 1).reshape(*batch, self.dim)


class Entries(nn.Module):
    """The entries of a dict, each through its own encoder, concatenated in the order of the space, [..., dim]."""

    def __init__(self, space: gym.spaces.Dict) -> None:
        super().__init__()
        self.keys = list(space)
        encoders = [encoder(child) for child in space.values()]
        # Not a ModuleDict, which refuses keys such as `a.b` and `keys`.
        self.entries = nn.ModuleList(encoders)
        self.dim: int = sum(entry.dim for entry in encoders)

    def forward(self, obs: Tree) -> Tensor:
        if not isinstance(obs, dict):
            raise UserError("these observations must be a dict, like their space")
        encoded = [entry(obs[key]) for key, entry in zip(self.keys, self.entries, strict=True)]
        return torch.cat(encoded, dim=-1)


Encoder = Flatten | Image | Entries | NetHack
