"""NetHack's screen as one vector: the map, a crop of it around the agent, the status line and the message.

The network of the paper's MiniHack runs, in two sizes of the same structure. With one more layer of `hidden` ReLU units on
top its `paper` size is the trunk φ of 16,008,976 parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.errors import UserError

KEYS = ("glyphs", "blstats", "message")
GLYPHS = 5976  # kinds of things a cell of the map can show
CHARACTERS = 256
CROP = range(-5, 4)  # rows and columns around the agent; the released code's crop is not centred

NetworkName = Literal["paper", "compact"]


@dataclass(frozen=True)
class Size:
    """Widths of the layers."""

    glyph: int  # embedding of a glyph
    channels: tuple[int, ...]  # of the five convolutions over the map, and of those over the crop
    map_strides: tuple[int, ...]
    crop_strides: tuple[int, ...]
    status: int  # both layers of the status line
    character: int  # embedding of a character
    message: int  # channels of the convolutions over the message, and its output
    hidden: int  # the layer that joins everything


SIZES: dict[NetworkName, Size] = {
    "paper": Size(
        glyph=64,
        channels=(16, 16, 16, 16, 8),
        map_strides=(1, 1, 1, 1, 1),
        crop_strides=(1, 1, 1, 1, 1),
        status=64,
        character=32,
        message=64,
        hidden=1024,
    ),
    "compact": Size(
        glyph=8,
        channels=(8, 16, 16, 16, 8),
        map_strides=(2, 2, 2, 1, 1),
        crop_strides=(1, 2, 1, 1, 1),
        status=32,
        character=16,
        message=32,
        hidden=256,
    ),
}


def is_nethack(space: gym.Space[Any]) -> bool:
    """A dict with glyphs, blstats and message."""
    return isinstance(space, gym.spaces.Dict) and all(key in space.spaces for key in KEYS)


class NetHack(nn.Module):
    """glyphs [..., 21, 79], blstats [..., 27] and message [..., 256] → [..., dim]; other entries are ignored.

    The status line is not normalised, as in the released code.
    """

    offsets: Tensor

    def __init__(self, space: gym.spaces.Dict, name: NetworkName = "compact") -> None:
        super().__init__()
        size = SIZES[name]
        height, width = space["glyphs"].shape or ()
        (status,) = space["blstats"].shape or ()
        (length,) = space["message"].shape or ()
        self.dim = size.hidden
        self.glyphs = nn.Embedding(GLYPHS, size.glyph)
        self.map = nn.Sequential(*convolutions(size.glyph, size.channels, size.map_strides))
        self.crop = nn.Sequential(*convolutions(size.glyph, size.channels, size.crop_strides))
        self.status = nn.Sequential(
            nn.Linear(status, size.status), nn.ReLU(), nn.Linear(size.status, size.status), nn.ReLU()
        )
        self.message = Message(length, size.character, size.message)
        cells = convolved(height, size.map_strides) * convolved(width, size.map_strides)
        cells += convolved(len(CROP), size.crop_strides) ** 2
        self.join = nn.Linear(size.status + size.channels[-1] * cells + size.message, size.hidden)
        self.register_buffer("offsets", torch.tensor(CROP), persistent=False)

    def forward(self, obs: Tree) -> Tensor:
        if not isinstance(obs, dict):
            raise UserError("NetHack observations are a dict of glyphs, blstats and message")
        screen: Any = obs
        batch = screen["blstats"].shape[:-1]
        glyphs, status, message = (
            screen[key].flatten(0, len(batch) - 1) if batch else screen[key][None] for key in KEYS
        )
        glyphs, status, message = glyphs.long(), status.to(torch.get_default_dtype()), message.long()
        # Most screens show no message or one of a few: encode each distinct message once.
        messages, which = message.unique(dim=0, return_inverse=True)
        around = cropped(glyphs, status[:, 0].long(), status[:, 1].long(), self.offsets)
        parts = [
            self.status(status),
            self.crop(rows_of(self.glyphs.weight, around).permute(0, 3, 1, 2)).flatten(1),
            self.map(rows_of(self.glyphs.weight, glyphs).permute(0, 3, 1, 2)).flatten(1),
            self.message(messages)[which],
        ]
        return F.relu(self.join(torch.cat(parts, dim=-1))).reshape(*batch, self.dim)


def rows_of(weight: Tensor, ids: Tensor) -> Tensor:
    """weight[ids], [..., d]. Its gradient takes a quarter of the time of an embedding's."""
    return weight.index_select(0, ids.flatten()).view(*ids.shape, -1)


def convolutions(inputs: int, channels: tuple[int, ...], strides: tuple[int, ...]) -> Iterator[nn.Module]:
    """3×3 convolutions, padded by one cell, each followed by ELU."""
    for (before, after), stride in zip(pairwise((inputs, *channels)), strides, strict=True):
        yield nn.Conv2d(before, after, 3, stride=stride, padding=1)
        yield nn.ELU(inplace=True)


def convolved(length: int, strides: tuple[int, ...]) -> int:
    """The length of a side after these convolutions: ⌈length / stride⌉ for each."""
    for stride in strides:
        length = -(-length // stride)
    return length


def cropped(glyphs: Tensor, x: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
    """The cells around (x, y) of each map: [B, H, W], [B], [B] → [B, 9, 9]; glyph 0 outside the map."""
    height, width = glyphs.shape[1:]
    rows, columns = (y[:, None] + offsets)[:, :, None], (x[:, None] + offsets)[:, None, :]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    which = torch.arange(len(glyphs), device=glyphs.device)[:, None, None]
    return glyphs[which, rows.clamp(0, height - 1), columns.clamp(0, width - 1)] * inside


class Message(nn.Module):
    """Characters [B, length] → [B, width]: embedding, six 1-D convolutions with three poolings, two linear layers."""

    def __init__(self, length: int, character: int, width: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, character, padding_idx=0)
        layers: list[nn.Module] = []
        for (before, after), kernel, pool in zip(
            pairwise((character, *[width] * 6)), (7, 7, 3, 3, 3, 3), (3, 3, 0, 0, 0, 3), strict=True
        ):
            layers += [nn.Conv1d(before, after, kernel), nn.ReLU(inplace=True)]
            length -= kernel - 1
            if pool:
                layers.append(nn.MaxPool1d(pool))
                length //= pool
        self.layers = nn.Sequential(
            *layers,
            nn.Flatten(),
            nn.Linear(width * length, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
        )

    def forward(self, message: Tensor) -> Tensor:
        vector: Tensor = self.layers(self.characters(message).transpose(1, 2))
        return vector
