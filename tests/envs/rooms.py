"""Hand-made levels: rectangles side by side, and their lumps."""

from __future__ import annotations

import numpy as np

from critex.envs.wad import LINE, SECTOR, SIDE, THING, Level, Lumps

Room = tuple[int, int, int, int, int, int]
"""x0, y0, x1, y1, floor, ceiling"""


def rooms(*all_rooms: Room, walls: tuple[tuple[int, int, int, int], ...] = ()) -> Level:
    """Rooms that share whole edges are joined there; `walls` are impassable lines inside of them."""
    edges: dict[tuple[tuple[int, int], tuple[int, int]], list[int]] = {}
    for sector, (x0, y0, x1, y1, _, _) in enumerate(all_rooms):
        corners = [(x0, y0), (x0, y1), (x1, y1), (x1, y0)]  # clockwise: the room is to the right
        for a, b in zip(corners, corners[1:] + corners[:1], strict=True):
            if (b, a) in edges:
                edges[b, a][1] = sector
            else:
                edges[a, b] = [sector, -1]
    lines = [(*a, *b) for a, b in edges]
    sides = list(edges.values())
    impassable = [left < 0 for _, left in sides]
    for wall in walls:
        lines.append(wall)
        inside = next(
            i for i, r in enumerate(all_rooms) if r[0] <= wall[0] <= r[2] and r[1] <= wall[1] <= r[3]
        )
        sides.append([inside, inside])
        impassable.append(True)
    floor, ceiling = np.array([r[4:] for r in all_rooms]).T
    return Level("TEST", np.array(lines), np.array(sides), np.array(impassable), floor, ceiling)


def lumps(level: Level, specials: dict[int, tuple[int, int]], tags: dict[int, int]) -> Lumps:
    """The level as the lumps of a map; `specials` of lines as (special, tag), `tags` of sectors."""
    points = np.unique(level.lines.reshape(-1, 2), axis=0).tolist()
    lines = np.zeros(len(level.lines), LINE)
    sides = []
    for i, (ends, sectors) in enumerate(zip(level.lines.tolist(), level.sides.tolist(), strict=True)):
        lines[i]["start"], lines[i]["end"] = points.index(ends[:2]), points.index(ends[2:])
        lines[i]["flags"] = level.impassable[i] and min(sectors) >= 0
        lines[i]["special"], lines[i]["tag"] = specials.get(i, (0, 0))
        for side, sector in zip(("right", "left"), sectors, strict=True):
            lines[i][side] = len(sides) if sector >= 0 else -1
            if sector >= 0:
                sides.append(sector)
    side_records, sectors_ = np.zeros(len(sides), SIDE), np.zeros(len(level.floor), SECTOR)
    side_records["sector"] = sides
    sectors_["floor"], sectors_["ceiling"], sectors_["special"] = level.floor, level.ceiling, 9
    for sector, tag in tags.items():
        sectors_[sector]["tag"] = tag
    things = np.array([(8, 8, 0, 3004, 7), (16, 16, 90, 1, 7)], THING)
    return {
        "THINGS": things.tobytes(),
        "LINEDEFS": lines.tobytes(),
        "SIDEDEFS": side_records.tobytes(),
        "VERTEXES": np.array(points, "<i2").tobytes(),
        "SECTORS": sectors_.tobytes(),
        **dict.fromkeys(("SEGS", "SSECTORS", "NODES", "REJECT", "BLOCKMAP"), b""),
    }
