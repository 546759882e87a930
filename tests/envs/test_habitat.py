"""What of the Habitat adapter can be tested without the simulator: every conversion, on arrays of its shapes."""

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from critex.envs import make
from critex.envs.coverage import RANGE, Fog
from critex.envs.habitat import (
    ACTIONS,
    cell_of,
    check,
    heading_of,
    metres_per_cell,
    observation,
    observation_space,
    overrides,
)
from critex.errors import UserError

absent = pytest.mark.skipif(find_spec("habitat") is not None, reason="Habitat is installed")


def test_the_settings_are_the_papers() -> None:
    settings = dict(item.split("=", 1) for item in overrides("val"))
    agent = "habitat.simulator.agents.main_agent"
    assert settings["habitat.dataset.split"] == "val"
    assert settings["habitat.environment.max_episode_steps"] == "500"
    assert settings["habitat.simulator.forward_step_size"] == "0.25"
    assert settings["habitat.simulator.turn_angle"] == "10"
    assert settings[f"{agent}.radius"] == "0.1" and settings[f"{agent}.height"] == "1.5"
    assert settings[f"{agent}.sim_sensors.depth_sensor.max_depth"] == "10.0"
    for sensor in ("rgb_sensor", "depth_sensor"):
        assert settings[f"{agent}.sim_sensors.{sensor}.width"] == "256"
        assert settings[f"{agent}.sim_sensors.{sensor}.hfov"] == "90"
    assert ACTIONS == ("stop", "move_forward", "turn_left", "turn_right")
    with pytest.raises(UserError, match="unknown split 'test'"):
        overrides("test")


def raw() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "rgb": rng.integers(0, 256, (256, 256, 4), np.uint8),
        "depth": rng.random((256, 256, 1), np.float32),
        "gps": np.array([1.0, -2.0], np.float32),
        "compass": np.array([0.5], np.float32),
        "pointgoal_with_gps_compass": np.zeros(2, np.float32),
    }


def test_observations_lose_goal_and_alpha() -> None:
    obs = observation(raw())
    assert observation_space().contains(obs) and np.array_equal(obs["rgb"], raw()["rgb"][..., :3])
    flat = observation(raw() | {"depth": raw()["depth"][..., 0], "compass": np.float32(0.5)})
    assert observation_space().contains(flat) and np.array_equal(flat["depth"], obs["depth"])
    blind = raw()
    del blind["depth"]
    with pytest.raises(UserError, match="gives no depth; its sensors are compass, gps"):
        observation(blind)
    with pytest.raises(UserError, match="where 128 × 128 was asked for"):
        observation(raw(), 128)


@pytest.mark.parametrize(
    "turn, ahead", [(0, (0, -1)), (90, (-1, 0)), (180, (0, 1)), (270, (1, 0)), (45, (-0.7071, -0.7071))]
)
def test_the_heading_on_the_map(turn: float, ahead: tuple[float, float]) -> None:
    """A turn to the left about the vertical axis, from looking along −z; ahead is (x, z)."""
    half = math.radians(turn) / 2
    angle = heading_of(np.array([math.cos(half), 0, math.sin(half), 0]))
    assert (math.cos(angle), math.sin(angle)) == pytest.approx(ahead, abs=1e-3)


def test_points_become_cells() -> None:
    lower, upper = np.array([-2.0, 0.0, -5.0]), np.array([6.0, 3.0, 15.0])
    assert metres_per_cell(lower, upper) == 8 / 1024
    assert cell_of(np.array([0.0, 1.0, -4.0]), lower, 0.5) == (2.0, 4.0)


def test_coverage_of_a_room() -> None:
    """A room of 4 × 6 m, seen from its middle in a full turn."""
    cell = 0.05
    free = np.zeros((120, 160), bool)
    free[20:100, 20:140] = True
    fog = Fog(free, RANGE / cell)
    row, column = cell_of(np.array([4.0, 0.0, 3.0]), np.zeros(3), cell)
    for k in range(36):
        half = math.radians(10 * k) / 2
        fog.look(row, column, heading_of(np.array([math.cos(half), 0, math.sin(half), 0])))
    assert fog.coverage > 0.99


@absent
def test_without_habitat_it_says_what_to_install() -> None:
    with pytest.raises(UserError, match="habitat-sim and habitat-lab 0.3"):
        make("HabitatExplore-val-v0")
    assert len(check()) == 1 and "conda" in check()[0]
