"""Reference policies without learning: random steps, and following the wall on the right."""

from __future__ import annotations

import torch
from torch import Tensor

from critex.data.tree import Tree
from critex.errors import UserError

FORWARD, LEFT, RIGHT = range(3)
NEAR, BESIDE = 6, 12  # depth (of 255) below which a wall blocks the way, and below which it is alongside


def random_steps(obs: Tree) -> Tensor:
    """Forward, left and right with equal chances, [N]; draws from torch's global generator."""
    return torch.randint(3, (len(_image(obs)),))


def follow_wall(obs: Tree) -> Tensor:
    """Keep the wall on the right, using only the depth of images [N, H, W, 4]: [N].

    Left where the middle of the view is blocked, right where its right edge is open, else forward. At an outer
    corner a forward step now and then, by chance, keeps it from turning on the spot.
    """
    depth = _image(obs)[..., 3].float()
    height, width = depth.shape[-2:]
    row = depth[:, height // 3 : 2 * height // 3]
    ahead = row[..., width // 3 : 2 * width // 3].amin((1, 2))
    right = row[..., -max(width // 10, 1) :].amin((1, 2))
    action = torch.where(right > BESIDE, RIGHT, FORWARD)
    stroll = torch.rand(len(depth)) < 0.6
    action = torch.where((action == RIGHT) & stroll, FORWARD, action)
    return torch.where(ahead <= NEAR, LEFT, action)


def _image(obs: Tree) -> Tensor:
    if not isinstance(obs, Tensor) or obs.ndim != 4 or obs.shape[-1] != 4:
        raise UserError(
            "a reference policy sees an image of RGB and depth, as VizdoomExplore-train-v0 gives with sensors=image"
        )
    return obs
