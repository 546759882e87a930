import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critex.envs.coverage import CELL, Fog, floor_plan
from critex.errors import UserError
from tests.envs.rooms import rooms


def box(cells: np.ndarray) -> tuple[int, int, int, int]:
    """Rows and columns of the smallest box around the cells: first and last."""
    rows, columns = np.nonzero(cells)
    return int(rows.min()), int(rows.max()), int(columns.min()), int(columns.max())


def test_a_room_loses_the_players_radius_at_its_walls() -> None:
    plan = floor_plan(rooms((0, 0, 128, 96, 0, 128)))
    # centres 4 + 8k at least 16 from the walls at 0 and 128, 96
    assert box(plan.reachable) == (2, 9, 2, 13) and plan.reachable.sum() == 8 * 12
    assert (plan.start == plan.reachable).all()
    assert plan.point(2, 3) == (28, 20) and plan.cell(28, 20) == (2.5, 3.5)


@pytest.mark.parametrize("width, joined", [(40, True), (24, False)])
def test_a_corridor_must_be_as_wide_as_the_player(width: int, joined: bool) -> None:
    low, high = 64, 64 + width
    plan = floor_plan(
        rooms(
            (0, 0, 128, low, 0, 128), (0, low, 128, high, 0, 128), (0, high, 128, 192, 0, 128),
            (128, low, 192, high, 0, 128), (192, 0, 320, low, 0, 128), (192, low, 320, high, 0, 128),
            (192, high, 320, 192, 0, 128),
        )
    )  # fmt: skip
    across = plan.reachable[:, : 128 // CELL].any() and plan.reachable[:, 192 // CELL :].any()
    assert across == joined == bool(plan.reachable[:, 160 // CELL].any())


@pytest.mark.parametrize("rise, up, down", [(24, True, True), (25, False, True)])
def test_steps_of_24_units_are_climbed_and_any_are_fallen_from(rise: int, up: bool, down: bool) -> None:
    low, high = (0, 0, 128, 128, 0, 256), (128, 0, 320, 128, rise, 256)
    plan = floor_plan(rooms(low, high))
    above, below = plan.start[:, 160 // CELL :].any(), plan.start[:, : 96 // CELL].any()
    assert above and below == up  # the larger room is where episodes start
    assert plan.reachable[:, : 96 // CELL].any() == down


def test_low_ceilings_stop_the_player() -> None:
    for ceiling, passes in ((56, True), (55, False)):
        plan = floor_plan(
            rooms((0, 0, 128, 128, 0, 128), (128, 0, 192, 128, 0, ceiling), (192, 0, 400, 128, 0, 128))
        )
        assert plan.reachable[:, : 96 // CELL].any() == passes


def test_a_thin_wall_divides_a_room() -> None:
    plan = floor_plan(rooms((0, 0, 256, 128, 0, 128), walls=((96, 0, 96, 128),)))
    assert box(plan.reachable) == (2, 13, 14, 29)  # from 16 beyond the wall at 96
    part = floor_plan(rooms((0, 0, 256, 128, 0, 128), walls=((96, 0, 96, 64),)))
    assert box(part.reachable) == (2, 13, 2, 29) and not part.reachable[:7, 10:14].any()


def test_a_slanted_wall_is_kept_at_a_distance() -> None:
    plan = floor_plan(rooms((0, 0, 256, 256, 0, 128), walls=((0, 0, 256, 256),)))
    rows, columns = np.nonzero(plan.reachable)
    # A box of radius 16 touches the diagonal iff |x − y| < 32; steps of a unit along it are exact to half a unit.
    assert (np.abs(rows - columns) * CELL >= 31).all() and (np.abs(rows - columns) * CELL <= 32).any()


def test_a_level_without_room_is_one_line() -> None:
    with pytest.raises(UserError, match="TEST has no reachable area"):
        floor_plan(rooms((0, 0, 24, 24, 0, 128)))
    with pytest.raises(UserError, match="nothing to reveal"):
        Fog(np.zeros((3, 3), bool), 5)


# Fog of war


def test_an_open_field_reveals_a_quarter_disc() -> None:
    length = 20.0
    fog = Fog(np.ones((81, 81), bool), length)
    fog.look(40.5, 40.5, 0.0)
    rows, columns = np.nonzero(fog.mask)
    angle = np.arctan2(rows - 40, np.maximum(columns - 40, 1e-9))
    away = np.hypot(rows - 40, columns - 40)
    assert (columns >= 40).all() and (away <= length + 1).all()
    assert (np.abs(angle[away > 5]) <= math.pi / 4 + 0.2).all()
    area, edge = math.pi * length**2 / 4, (2 + math.pi / 2) * length
    assert area <= fog.mask.sum() <= area + edge  # the cells of the disc, and some that its edge cuts
    assert fog.coverage == fog.mask.sum() / 81**2


def test_walls_stop_the_view() -> None:
    free = np.ones((11, 21), bool)
    free[:, 10] = False
    fog = Fog(free, 8)
    fog.look(5.5, 5.5, 0.0)
    assert fog.mask[5, 9] and not fog.mask[:, 10:].any()


def test_beside_a_wall_one_sees_along_it() -> None:
    """A player stands where no cell's centre is far enough from the wall: it sees from the free cell beside its own."""
    free = np.ones((11, 21), bool)
    free[:3] = False
    along = []
    for row in (3.5, 2.9):
        fog = Fog(free, 8)
        fog.look(row, 5.5, 0.0)
        along.append(fog.mask)
    assert np.array_equal(along[0], along[1]) and along[1][3, 5:13].all()
    fog = Fog(free, 8)
    fog.look(0.5, 5.5, 0.0)  # deep inside the wall
    assert fog.coverage == 0


def test_looking_around_reveals_a_room_and_nothing_behind_it() -> None:
    free = np.zeros((20, 30), bool)
    free[2:9, 2:9] = free[2:9, 12:20] = True
    fog = Fog(free, 12)
    for turn in range(36):
        fog.look(5.5, 5.5, math.radians(10 * turn))
    assert fog.mask[2:9, 2:9].all() and fog.coverage == 49 / free.sum()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(0, 11.99),
    st.floats(0, 11.99),
    st.floats(-10, 10),
    st.integers(2, 30),
)
def test_rays_agree_with_a_loop(seed: int, row: float, column: float, heading: float, length: int) -> None:
    """Every ray followed on its own, point by point, beyond the edge of the map too."""
    free = np.random.default_rng(seed).random((12, 12)) < 0.8
    if not free.any():
        return
    fog, expected = Fog(free, length), np.zeros_like(free)
    fog.look(row, column, heading)
    if not free[int(row), int(column)]:
        around = [
            (i + 0.5, j + 0.5)
            for i, j in np.argwhere(free)
            if max(abs(i - int(row)), abs(j - int(column))) == 1
        ]
        if not around:
            assert not fog.mask.any()
            return
        row, column = min(around, key=lambda c: (c[0] - row) ** 2 + (c[1] - column) ** 2)
    half = math.floor(math.radians(90) / 2 * length)
    expected[int(row), int(column)] = True
    for k in range(-half, half + 1):
        for step in range(1, 2 * length + 1):
            # As the fog does, add the border first: a point outside by less than round-off is on the edge.
            at = (
                row + length + 1 + math.sin(heading + k / length) * step / 2,
                column + length + 1 + math.cos(heading + k / length) * step / 2,
            )
            i, j = (math.floor(x) - length - 1 for x in at)
            if not (0 <= i < 12 and 0 <= j < 12) or not free[i, j]:
                break
            expected[i, j] = True
    assert np.array_equal(fog.mask, expected & free)


def test_coverage_never_falls() -> None:
    fog, rng, last = Fog(np.ones((40, 40), bool), 10), np.random.default_rng(0), 0.0
    for _ in range(30):
        fog.look(*rng.uniform(0, 40, 2), rng.uniform(-4, 4))
        assert fog.coverage >= last
        last = fog.coverage
    assert 0.5 < last <= 1
