from pathlib import Path

import numpy as np
import pytest

from critex.envs.wad import SECTOR, THING, level, read_maps, static, write_wad
from critex.errors import UserError
from tests.envs.rooms import lumps, rooms

# A room, a closed door, a room; line 2 is the door's western face.
HALL = rooms((0, 0, 128, 128, 0, 128), (128, 0, 144, 128, 0, 0), (144, 0, 272, 128, 8, 96))
FACE = HALL.sides.tolist().index([0, 1])


def test_a_map_survives_the_way_to_disk_and_back(tmp_path: Path) -> None:
    stored = lumps(HALL, {}, {})
    write_wad(tmp_path / "a.wad", [("MAP01", stored), ("E1M1", stored)])
    maps = read_maps(tmp_path / "a.wad")
    assert list(maps) == ["MAP01", "E1M1"] and maps["E1M1"] == stored
    found = level("E1M1", maps)
    for name in ("lines", "sides", "impassable", "floor", "ceiling"):
        assert np.array_equal(getattr(found, name), getattr(HALL, name)), name


@pytest.mark.parametrize("tag", [0, 5], ids=["manual", "tagged"])
def test_doors_open_and_nothing_else_moves(tag: int) -> None:
    made = static(lumps(HALL, {FACE: (1, tag)}, {1: tag} if tag else {}))
    sectors = np.frombuffer(made["SECTORS"], SECTOR)
    assert sectors["ceiling"].tolist() == [128, 92, 96]  # 4 below the lowest ceiling beside it
    assert not sectors["special"].any() and not sectors["tag"].any()
    assert np.frombuffer(made["THINGS"], THING)["type"].tolist() == [1]
    untouched = static(lumps(HALL, {}, {}))
    assert np.frombuffer(untouched["SECTORS"], SECTOR)["ceiling"].tolist() == [128, 0, 96]


def test_an_unknown_level_is_one_line() -> None:
    with pytest.raises(UserError, match="unknown level 'MAP99'"):
        level("MAP99", {"MAP01": lumps(HALL, {}, {})})
