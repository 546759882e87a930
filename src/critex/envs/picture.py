"""A small grid of numbers as an rgb picture, for `render`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WATER, GOAL, SWIMMER = (17, 60, 94), (222, 184, 65), (240, 240, 240)


def picture(cells: NDArray[np.float64], pixels: int = 16) -> NDArray[np.uint8]:
    """cells [H, W] with 0 water, 0.5 goal, 1 swimmer → rgb [H·pixels, W·pixels, 3]."""
    colours = np.array([WATER, GOAL, SWIMMER], np.uint8)[(cells * 2).astype(np.int64)]
    return colours.repeat(pixels, axis=0).repeat(pixels, axis=1)
