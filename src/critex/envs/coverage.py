"""Coverage, the share of a scene that an agent has seen: a map of where it can go, under a fog of war that its view lifts.

The measure of the paper's Habitat experiment: coverage = revealed free cells / all free cells at the end of an
episode. A cell is revealed once a ray from the agent's cell, within a field of view of 90° around its heading and
5 m long, reaches it before any blocked cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array  # type: ignore[import-untyped]
from scipy.sparse.csgraph import breadth_first_order, connected_components  # type: ignore[import-untyped]

from critex.envs.wad import PLAYER_HEIGHT, Level
from critex.errors import UserError

UNITS_PER_METRE = 32.0  # a player of 56 units is then 1.75 m tall
CELL = 8  # map units, 0.25 m
RADIUS = 16  # half the side of the player's bounding box
STEP = 24  # the highest step that a player climbs

RANGE = 5.0  # metres
FIELD_OF_VIEW = math.radians(90)
STRETCH = 64  # half-cell steps of a ray that are taken at once

Cells = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Fog:
    """The fog of war over one map. `free` [H, W] marks the cells that rays pass through; all others block them.

    Rays leave the agent's cell at angles 1/L apart, where L is their length in cells, so that neighbouring rays are
    one cell apart at their ends; they are followed in steps of half a cell. Angles are measured from the direction of
    rising columns to that of rising rows. An agent in a blocked cell, as it may be beside a wall, sees from the nearest
    free cell around it.
    """

    def __init__(self, free: Mask, length: float) -> None:
        self.free, self.size = free, int(free.sum())
        if not self.size:
            raise UserError("a map without a free cell has nothing to reveal")
        half = math.floor(FIELD_OF_VIEW / 2 * length)
        self._angles = np.arange(-half, half + 1) / length
        distances = np.arange(1, 2 * math.floor(length) + 1) / 2
        self._stretches = np.split(distances, range(STRETCH, len(distances), STRETCH))
        # A border of blocked cells as wide as a ray is long: no ray leaves the array.
        self._pad = math.ceil(length) + 1
        self._open = np.pad(free, self._pad)
        self._seen = np.zeros_like(self._open)

    def look(self, row: float, column: float, heading: float) -> None:
        """Reveal what is seen from a point, given in cells: the centre of the cell [0, 0] is (0.5, 0.5)."""
        row, column = row + self._pad, column + self._pad
        if not self._open[int(row), int(column)]:
            row, column = self._beside(row, column)
        open_, seen, width = self._open.ravel(), self._seen.ravel(), self._open.shape[1]
        seen[int(row) * width + int(column)] = True
        sin, cos = np.sin(self._angles + heading), np.cos(self._angles + heading)
        for distances in self._stretches:  # stopped rays are dropped
            cells = (row + np.outer(sin, distances)).astype(np.int64) * width
            cells += (column + np.outer(cos, distances)).astype(np.int64)
            clear = open_[cells]
            np.logical_and.accumulate(clear, axis=1, out=clear)
            seen[cells[clear]] = True
            sin, cos = sin[clear[:, -1]], cos[clear[:, -1]]
            if not sin.size:
                break

    def _beside(self, row: float, column: float) -> tuple[float, float]:
        """The centre of the nearest free cell among the eight around a point; the point itself if none is free."""
        top, left = int(row) - 1, int(column) - 1
        centres = np.argwhere(self._open[top : top + 3, left : left + 3]) + np.array([top + 0.5, left + 0.5])
        if not len(centres):
            return row, column
        away = np.square(centres - np.array([row, column])).sum(1)
        nearest: tuple[float, float] = tuple(centres[away.argmin()].tolist())
        return nearest

    @property
    def mask(self) -> Mask:
        """The free cells revealed so far, [H, W]."""
        inner = slice(self._pad, -self._pad)
        revealed: Mask = self._seen[inner, inner] & self.free
        return revealed

    @property
    def coverage(self) -> float:
        """Revealed free cells / free cells."""
        return float(self.mask.sum() / self.size)


@dataclass(frozen=True)
class FloorPlan:
    """A level from above. Row 0 is the lowest y; the cell [0, 0] begins at `origin` (x, y), in map units.

    `start` [H, W]: the largest set of cells that can all be reached from each other; episodes begin there.
    `reachable` [H, W]: the cells that can be reached from it, which include those that one falls into and cannot
    leave.
    """

    level: Level
    origin: tuple[int, int]
    start: Mask
    reachable: Mask

    def cell(self, x: float, y: float) -> tuple[float, float]:
        """A point of the level as (row, column), in cells."""
        return (y - self.origin[1]) / CELL, (x - self.origin[0]) / CELL

    def point(self, row: int, column: int) -> tuple[int, int]:
        """The centre of a cell as (x, y), in map units."""
        return self.origin[0] + column * CELL + CELL // 2, self.origin[1] + row * CELL + CELL // 2

    def fog(self) -> Fog:
        """Fog over the reachable cells."""
        return Fog(self.reachable, RANGE * UNITS_PER_METRE / CELL)


def floor_plan(level: Level) -> FloorPlan:
    """Where a player can stand and walk in a level.

    The player is a box of 32 × 32 units, 56 tall. Standing at the centre of a cell, it rests on the highest floor and
    is bounded by the lowest ceiling of all sectors that it touches; it cannot stand where it touches an impassable
    line, or where the clearance is below 56 units. It walks to a neighbouring cell if the floor rises by at most 24 units
    and the clearance above the higher of the two floors is at least 56.
    """
    ends = level.lines.reshape(-1, 2)
    origin = ends.min(0) // CELL * CELL
    width, height = (ends.max(0) - origin) // CELL + 1
    sector = _sectors(level, origin, int(height), int(width))
    floor = np.where(sector >= 0, level.floor[sector], np.iinfo(np.int64).max // 2)
    ceiling = np.where(sector >= 0, level.ceiling[sector], 0)
    blocked = sector < 0
    _touch_lines(level, origin, floor, ceiling, blocked)
    stands = ~blocked & (ceiling - floor >= PLAYER_HEIGHT)
    if not stands.any():
        raise UserError(f"level {level.name} has no reachable area: there is no room for a player")

    index = np.arange(stands.size).reshape(stands.shape)
    edges = []
    for here, there in (
        (np.s_[:, :-1], np.s_[:, 1:]),
        (np.s_[:, 1:], np.s_[:, :-1]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[1:], np.s_[:-1]),
    ):
        climb = floor[there] - floor[here]
        room = np.minimum(ceiling[here], ceiling[there]) - np.maximum(floor[here], floor[there])
        walks = stands[here] & stands[there] & (climb <= STEP) & (room >= PLAYER_HEIGHT)
        edges.append(np.stack([index[here][walks], index[there][walks]]))
    from_, to = np.concatenate(edges, axis=1)
    graph = coo_array((np.ones(len(from_), bool), (from_, to)), shape=(stands.size, stands.size)).tocsr()
    _, component = connected_components(graph, directed=True, connection="strong")
    largest = np.bincount(component[stands.ravel()]).argmax()
    start = component == largest
    reached = np.zeros(stands.size, bool)
    reached[breadth_first_order(graph, int(start.argmax()), return_predecessors=False)] = True
    shape = stands.shape
    return FloorPlan(level, (int(origin[0]), int(origin[1])), start.reshape(shape), reached.reshape(shape))


def _sectors(level: Level, origin: Cells, height: int, width: int) -> Cells:
    """The sector at the centre of each cell, [H, W], −1 outside. Exact: each row is split where lines cross it."""
    (x0, y0, x1, y1), (right, left) = level.lines.T, level.sides.T
    upward = y1 > y0
    low, high = np.minimum(y0, y1), np.maximum(y0, y1)
    to_the_east = np.where(upward, right, left)  # going up, the right side lies towards larger x
    centres = origin[1] + CELL * np.arange(height) + CELL / 2
    crossed = (low <= centres[:, None]) & (centres[:, None] < high)  # [H, L]
    rows, lines = np.nonzero(crossed)
    x = x0[lines] + (centres[rows] - y0[lines]) / (y1 - y0)[lines] * (x1 - x0)[lines]
    order = np.lexsort((x, rows))
    rows, x, sector = rows[order], x[order], to_the_east[lines][order]
    # One sorted sequence over all rows: rows are further apart than the level is wide.
    stride = 4.0 * CELL * (width + 2)
    keys = rows * stride + (x - origin[0])
    cells = np.arange(height)[:, None] * stride + CELL * np.arange(width) + CELL / 2
    last = np.searchsorted(keys, cells.ravel(), side="right") - 1
    found = np.where((last >= 0) & (rows[last] == np.repeat(np.arange(height), width)), sector[last], -1)
    return found.reshape(height, width)


def _touch_lines(level: Level, origin: Cells, floor: Cells, ceiling: Cells, blocked: Mask) -> None:
    """Apply each line to every cell at whose centre a player's box would touch it."""
    length = np.hypot(level.lines[:, 2] - level.lines[:, 0], level.lines[:, 3] - level.lines[:, 1])
    count = np.ceil(length).astype(np.int64) + 1  # points at most one unit apart, ends included
    line = np.repeat(np.arange(len(count)), count)
    at = np.arange(len(line)) - np.repeat(np.cumsum(count) - count, count)
    share = at / np.maximum(count - 1, 1)[line]
    points = level.lines[line, :2] + share[:, None] * (level.lines[line, 2:] - level.lines[line, :2])
    # Cells whose centre c has |c − p| < 16 in both coordinates: the first one, and at most three more each way.
    first = np.floor((points - origin - CELL / 2 - RADIUS) / CELL).astype(np.int64) + 1
    reach = np.ceil((points - origin - CELL / 2 + RADIUS) / CELL).astype(np.int64) - first  # cells each way
    two_sided: Mask = np.all(level.sides >= 0, axis=1)
    high, low = level.floor[level.sides].max(1), level.ceiling[level.sides].min(1)
    size = 2 * RADIUS // CELL
    for i in range(size + 1):
        for j in range(size + 1):
            column, row = first[:, 0] + i, first[:, 1] + j
            inside = (i < reach[:, 0]) & (j < reach[:, 1]) & (row >= 0) & (column >= 0)
            inside &= (row < blocked.shape[0]) & (column < blocked.shape[1])
            stops = inside & level.impassable[line]
            blocked[row[stops], column[stops]] = True
            raises = inside & two_sided[line]
            cells = row[raises], column[raises]
            np.maximum.at(floor, cells, high[line[raises]])
            np.minimum.at(ceiling, cells, low[line[raises]])
