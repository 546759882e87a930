"""Doom levels as geometry: reads the maps of a WAD file and writes them back as static levels to walk through."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from critex.errors import unknown

LINE = np.dtype("<i2, <i2, <u2, <u2, <u2, <i2, <i2")
LINE.names = ("start", "end", "flags", "special", "tag", "right", "left")
SIDE = np.dtype([("offset", "<i2", 2), ("textures", "S8", 3), ("sector", "<i2")])
SECTOR = np.dtype("<i2, <i2, S8, S8, <i2, <u2, <u2")
SECTOR.names = ("floor", "ceiling", "floor_texture", "ceiling_texture", "light", "special", "tag")
THING = np.dtype("<i2, <i2, <i2, <u2, <u2")
THING.names = ("x", "y", "angle", "type", "flags")

LUMPS = "THINGS LINEDEFS SIDEDEFS VERTEXES SEGS SSECTORS NODES SECTORS REJECT BLOCKMAP".split()
MAP_NAME = re.compile(r"E\dM\d|MAP\d\d")
IMPASSABLE = 0x0001  # a flag of lines
PLAYER_START = 1  # a type of things
PLAYER_HEIGHT = 56  # map units
DOOR_GAP = 4  # an open door ends this far below the lowest ceiling beside it

Lumps = dict[str, bytes]


@dataclass(frozen=True)
class Level:
    """A level with its doors open. Heights and coordinates are in map units.

    `lines` [L, 4]: x and y of both ends. `sides` [L, 2]: the sectors to the right and left of each line, −1 where there
    is none. `impassable` [L]: lines that stop the player. `floor`, `ceiling` [S]: heights of the sectors.
    """

    name: str
    lines: NDArray[np.int64]
    sides: NDArray[np.int64]
    impassable: NDArray[np.bool_]
    floor: NDArray[np.int64]
    ceiling: NDArray[np.int64]


def read_maps(path: Path) -> dict[str, Lumps]:
    """The lumps of every map in a WAD file, by the map's name."""
    data = path.read_bytes()
    count, directory = struct.unpack_from("<ii", data, 4)
    entries = []
    for i in range(count):
        offset, size, name = struct.unpack_from("<ii8s", data, directory + 16 * i)
        entries.append((name.rstrip(b"\0").decode("latin-1"), data[offset : offset + size]))
    return {
        name: dict(entries[i + 1 : i + 1 + len(LUMPS)])
        for i, (name, _) in enumerate(entries)
        if MAP_NAME.fullmatch(name)
    }


def static(lumps: Lumps) -> Lumps:
    """The map as a static level: doors are open, nothing moves, hurts, teleports or ends the level.

    A door is a closed sector (less than a player's height from floor to ceiling) that some line would open: by its tag,
    or by being behind the line. Its ceiling is raised to 4 units below the lowest ceiling around it. Lifts and other
    moving floors stay where they are. The only thing kept is the player's start.
    """
    lines = np.frombuffer(lumps["LINEDEFS"], LINE).copy()
    sectors = np.frombuffer(lumps["SECTORS"], SECTOR).copy()
    sides = _side_sectors(lumps)
    active = lines["special"] > 0
    behind = sides[active & (lines["tag"] == 0) & (sides[:, 1] >= 0), 1]
    tagged = np.flatnonzero(np.isin(sectors["tag"], lines["tag"][active & (lines["tag"] > 0)]))
    closed = sectors["ceiling"] - sectors["floor"] < PLAYER_HEIGHT
    door = np.zeros(len(sectors), bool)
    door[behind] = door[tagged] = True
    door &= closed
    for sector in np.flatnonzero(door):
        beside = sides[(sides == sector).any(1) & (sides >= 0).all(1)].ravel()
        ceilings = sectors["ceiling"][[s for s in beside if not door[s]]]
        if len(ceilings):
            sectors["ceiling"][sector] = max(ceilings.min() - DOOR_GAP, sectors["floor"][sector])
    lines["special"] = lines["tag"] = sectors["special"] = sectors["tag"] = 0
    things = np.frombuffer(lumps["THINGS"], THING)
    start = things[things["type"] == PLAYER_START][:1]
    return lumps | {"LINEDEFS": lines.tobytes(), "SECTORS": sectors.tobytes(), "THINGS": start.tobytes()}


def level(name: str, maps: Mapping[str, Lumps]) -> Level:
    """The geometry of one of the maps."""
    if name not in maps:
        raise unknown("level", name, maps)
    lumps = maps[name]
    lines, sectors = np.frombuffer(lumps["LINEDEFS"], LINE), np.frombuffer(lumps["SECTORS"], SECTOR)
    vertices = np.frombuffer(lumps["VERTEXES"], "<i2").reshape(-1, 2).astype(np.int64)
    sides = _side_sectors(lumps)
    ends = np.concatenate([vertices[lines["start"]], vertices[lines["end"]]], axis=1)
    impassable = (sides < 0).any(1) | (lines["flags"] & IMPASSABLE > 0)
    return Level(
        name, ends, sides, impassable, sectors["floor"].astype(np.int64), sectors["ceiling"].astype(np.int64)
    )


def _side_sectors(lumps: Lumps) -> NDArray[np.int64]:
    lines, sides = np.frombuffer(lumps["LINEDEFS"], LINE), np.frombuffer(lumps["SIDEDEFS"], SIDE)
    both = np.stack([lines["right"], lines["left"]], axis=1)
    return np.where(both >= 0, sides["sector"][both], -1).astype(np.int64)


def write_wad(path: Path, maps: Iterable[tuple[str, Lumps]]) -> None:
    """A WAD file of these maps."""
    body, entries = b"", []
    for name, lumps in maps:
        entries.append((name, len(body), 0))
        for lump in LUMPS:
            entries.append((lump, len(body), len(lumps[lump])))
            body += lumps[lump]
    directory = b"".join(
        struct.pack("<ii8s", 12 + at, size, name.encode("latin-1")) for name, at, size in entries
    )
    path.write_bytes(struct.pack("<4sii", b"PWAD", len(entries), 12 + len(body)) + body + directory)
