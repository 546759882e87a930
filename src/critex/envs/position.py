"""Whether `info["position"]` identifies cells or whole grids."""

from __future__ import annotations

from hashlib import blake2b

from critex.errors import unknown

POSITIONS = ("cell", "grid")


def counts_grids(position: str) -> bool:
    """Whether the option `position` asks for whole grids."""
    if position not in POSITIONS:
        raise unknown("position", position, POSITIONS)
    return position == "grid"


def digest(grid: bytes) -> int:
    """A 64-bit hash of a grid."""
    return int.from_bytes(blake2b(grid, digest_size=8).digest(), "little", signed=True)
