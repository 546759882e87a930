"""What of the Habitat adapter can be tested without the simulator: every conversion, on arrays of its shapes."""

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from critex.cli import main
from critex.envs import habitat, make
from critex.envs.coverage import RANGE, Fog
from critex.envs.habitat import (
    ACTIONS,
    BASE,
    TopDownMap,
    cell_of,
    check,
    configuration,
    heading_of,
    metres_per_cell,
    observation,
    observation_space,
    overrides,
)
from critex.errors import UserError
from tests.envs import habitat_stand_in

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
    with pytest.raises(UserError, match="but 128 × 128 was requested"):
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


def test_the_map_of_an_episode() -> None:
    """The agent's place on the map, in the stand-in's room of 8 × 8 m: 1024 cells of 1/128 m along each side."""
    it = TopDownMap.of(habitat_stand_in.Pathfinder(), 0.1)
    assert it.cell == 8 / 1024 and it.fog.free.shape == (1024, 1024)
    row, column = it.look(np.array([0.0, 0.1, 0.0]), np.array([1.0, 0.0, 0.0, 0.0]))
    assert (row, column) == (3 * 128, 4 * 128) and it.position(row, column).tolist() == [6, 8]
    seen = it.fog.mask
    assert seen[100:384, 512].all() and not seen[500:, :].any()  # it looks along −z, towards row 0
    assert it.look(np.array([50.0, 0.1, -50.0]), np.array([1.0, 0.0, 0.0, 0.0])) == (0.0, 1024 - 0.001)


def test_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    habitat_stand_in.install(monkeypatch)
    config = configuration("val", 64)
    assert config.path == BASE and config.values["habitat.dataset.split"] == "val" and not config.writable
    assert config.habitat.task.lab_sensors == {"gps_sensor": "gps", "compass_sensor": "compass"}


def test_an_episode_of_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    habitat_stand_in.install(monkeypatch)
    monkeypatch.setattr(habitat, "STEPS", 60)
    env: Any = make("HabitatExplore-train-v0?size=16")
    obs, info = env.reset(seed=1)
    assert env.observation_space.contains(obs) and info["position"].shape == (2,)
    shares = []
    for t in range(60):
        obs, reward, terminated, truncated, info = env.step(np.int64(2 if t % 5 else 1))
        assert reward == 0 and not terminated and truncated == (t == 59) == ("measures" in info)
        shares.append(env.unwrapped.fog.coverage)
    assert shares == sorted(shares) and 0.3 < shares[-1] == info["measures"]["coverage"] <= 1
    assert len(env.unwrapped.path) == 61 and env.render().shape == (16, 16, 3)
    again = env.reset(seed=1)[1]["position"], env.reset(seed=1)[1]["position"]
    assert np.array_equal(*again)
    _, _, terminated, truncated, info = env.step(np.int64(0))  # STOP
    assert terminated and not truncated and 0 < info["measures"]["coverage"] < shares[-1]
    env.close()
    assert not env.unwrapped._env.open


def test_all_checks_pass_on_the_stand_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    habitat_stand_in.install(monkeypatch)
    main(["doctor", "habitat"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and all(line.startswith("ok: ") for line in lines)


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("metres", "the declared shapes: they are outside"),
        ("lost", "a free cell of the map: the cell is blocked"),
        ("turn", "10° to the compass: it changed by 0.524 rad"),
        ("backwards", "along the heading on the map: the cosine of the angle between them is -1.00"),
        ("noise", "two resets with one seed agree: they differ"),
        ("endless", "STOP ends the episode: it goes on"),
    ],
)
def test_every_check_can_fail(
    fault: str, failure: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    habitat_stand_in.install(monkeypatch, fault)
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "habitat"])
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed: ")]
    assert stop.value.code == 1 and any(failure in line for line in failed)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "no data",
            r"cannot load HM3D \(data/datasets/pointnav/hm3d/v1/val/val.json.gz\); install habitat-sim",
        ),
        (
            "no scene",
            r"cannot load HM3D \(ESP_CHECK failed: 00800-TEEsavR23oF.basis.glb is absent\); install",
        ),
        ("no episodes", "the PointNav episodes of HM3D, split val, are missing; install"),
    ],
)
def test_absent_data_is_one_line(fault: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    habitat_stand_in.install(monkeypatch, fault)
    with pytest.raises(UserError, match=message) as error:
        make("HabitatExplore-val-v0").reset(seed=0)
    assert "\n" not in str(error.value)
    (finding,) = check()
    assert finding[1] == str(error.value)


@absent
def test_without_habitat_it_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="habitat-sim and habitat-lab 0.3"):
        make("HabitatExplore-val-v0")
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "habitat"])
    out = capsys.readouterr().out
    assert stop.value.code == 1 and out.startswith("failed: ") and "conda" in out and out.count("\n") == 1
