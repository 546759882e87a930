"""Habitat: reward-free exploration of HM3D scenes, the paper's third setting; needs habitat-lab.

    critex train ppo_recurrent --env HabitatExplore-train-v0 --preset paper --explorer cae_plus

A thin adapter for habitat-lab 0.3 or newer: everything that can be computed from arrays alone is a function with its
own tests. critex's tests run without habitat-sim, on a stand-in with its interface; `check` runs on the real simulator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from critex.envs.coverage import RANGE, Fog
from critex.errors import UserError, reason, unknown

BASE = "benchmark/nav/pointnav/pointnav_hm3d.yaml"
ACTIONS = ("stop", "move_forward", "turn_left", "turn_right")
SPLITS = ("train", "val")
SIZE = 256
RESOLUTION = 1024  # cells along the shorter side of the map
STEPS = 500
INSTALL = (
    "install habitat-sim and habitat-lab 0.3 or newer with conda (they are not on PyPI), and download the scenes of "
    "HM3D and its PointNav episodes"
)


def overrides(split: str, size: int = SIZE) -> list[str]:
    """The settings of the paper's runs as overrides of habitat-lab's PointNav configuration on HM3D."""
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    sim, agent = "habitat.simulator", "habitat.simulator.agents.main_agent"
    camera = []
    for sensor in ("rgb_sensor", "depth_sensor"):
        at = f"{agent}.sim_sensors.{sensor}"
        camera += [f"{at}.width={size}", f"{at}.height={size}", f"{at}.hfov=90", f"{at}.position=[0,1.25,0]"]
    depth = f"{agent}.sim_sensors.depth_sensor"
    return [
        f"habitat.dataset.split={split}",
        f"habitat.environment.max_episode_steps={STEPS}",
        f"{sim}.forward_step_size=0.25",
        f"{sim}.turn_angle=10",
        f"{sim}.habitat_sim_v0.allow_sliding=True",
        f"{agent}.height=1.5",
        f"{agent}.radius=0.1",
        *camera,
        f"{depth}.min_depth=0.0",
        f"{depth}.max_depth=10.0",
        f"{depth}.normalize_depth=True",
    ]


def observation_space(height: int = SIZE, width: int = SIZE) -> spaces.Dict:
    """`rgb`, `depth` (0–10 m as [0, 1]), `gps` (metres, in the frame of the start) and `compass` (radians)."""
    return spaces.Dict(
        {
            "rgb": spaces.Box(0, 255, (height, width, 3), np.uint8),
            "depth": spaces.Box(0.0, 1.0, (height, width, 1), np.float32),
            "gps": spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "compass": spaces.Box(-np.pi, np.pi, (1,), np.float32),
        }
    )


def observation(raw: dict[str, Any], size: int = SIZE) -> dict[str, NDArray[Any]]:
    """Habitat's observations as ours: the goal sensor is left out, an alpha channel dropped, angles are [1]."""
    missing = [key for key in ("rgb", "depth", "gps", "compass") if key not in raw]
    if missing:
        raise UserError(f"Habitat gives no {', '.join(missing)}; its sensors are {', '.join(sorted(raw))}")
    rgb, depth = np.asarray(raw["rgb"], np.uint8)[..., :3], np.asarray(raw["depth"], np.float32)
    obs: dict[str, NDArray[Any]] = {
        "rgb": rgb,
        "depth": depth.reshape(*depth.shape[:2], 1),
        "gps": np.asarray(raw["gps"], np.float32).reshape(2),
        "compass": np.asarray(raw["compass"], np.float32).reshape(1),
    }
    if rgb.shape != (size, size, 3) or obs["depth"].shape != (size, size, 1):
        raise UserError(
            f"Habitat's images are {rgb.shape} and {depth.shape}, but {size} × {size} was requested"
        )
    return obs


def heading_of(rotation: NDArray[np.float64]) -> float:
    """The heading on the map for a quaternion (w, x, y, z), measured from rising columns (x) to rising rows (z).

    The agent looks along −z, turned by the quaternion.
    """
    w, x, y, z = rotation
    ahead_x, ahead_z = -2 * (x * z + w * y), -(1 - 2 * (x * x + y * y))
    return math.atan2(ahead_z, ahead_x)


def cell_of(position: NDArray[np.float64], lower: NDArray[np.float64], cell: float) -> tuple[float, float]:
    """(row, column) on the map, in cells, of a point (x, y, z): rows count z, columns x, from the lower bound."""
    return float((position[2] - lower[2]) / cell), float((position[0] - lower[0]) / cell)


def metres_per_cell(
    lower: NDArray[np.float64], upper: NDArray[np.float64], resolution: int = RESOLUTION
) -> float:
    """The shorter of the scene's two horizontal sides, divided into 1024 cells."""
    return float(min(abs(upper[0] - lower[0]), abs(upper[2] - lower[2])) / resolution)


def configuration(split: str, size: int = SIZE) -> Any:
    """habitat-lab's configuration with our settings, and with GPS and compass among the sensors."""
    import habitat  # type: ignore[import-not-found]
    from habitat.config import read_write  # type: ignore[import-not-found]
    from habitat.config.default_structured_configs import (  # type: ignore[import-not-found]
        CompassSensorConfig,
        GPSSensorConfig,
    )

    config = habitat.get_config(BASE, overrides=overrides(split, size))
    with read_write(config):
        config.habitat.task.lab_sensors.update(
            {"gps_sensor": GPSSensorConfig(), "compass_sensor": CompassSensorConfig()}
        )
    return config


def quaternion(rotation: Any) -> NDArray[np.float64]:
    """Habitat's rotation, an object with w, x, y and z, as an array [4]."""
    return np.array([rotation.w, rotation.x, rotation.y, rotation.z], np.float64)


@dataclass
class TopDownMap:
    """The floor on which an episode starts, and the place of the agent on it."""

    fog: Fog
    lower: NDArray[np.float64]
    """The scene's lower bound (x, y, z), metres."""
    cell: float
    """Metres per cell."""

    @classmethod
    def of(cls, pathfinder: Any, height: float) -> Self:
        """From Habitat's pathfinder, at the height of the agent's feet."""
        lower, upper = (np.asarray(bound, np.float64) for bound in pathfinder.get_bounds())
        cell = metres_per_cell(lower, upper)
        free = np.asarray(pathfinder.get_topdown_view(meters_per_pixel=cell, height=height), bool)
        return cls(Fog(free, RANGE / cell), lower, cell)

    def look(self, position: NDArray[np.float64], rotation: NDArray[np.float64]) -> tuple[float, float]:
        """Reveal what is seen from a pose, (x, y, z) and (w, x, y, z); returns its (row, column), inside the map."""
        row, column = cell_of(position, self.lower, self.cell)
        rows, columns = self.fog.free.shape
        row, column = min(max(row, 0.0), rows - 0.001), min(max(column, 0.0), columns - 0.001)
        self.fog.look(row, column, heading_of(rotation))
        return row, column

    def position(self, row: float, column: float) -> NDArray[np.int64]:
        """A place in cells of half a metre, [2], for visit counts: the map's own cells are centimetres wide."""
        return np.array([int(row * self.cell * 2), int(column * self.cell * 2)])


@contextmanager
def one_line() -> Iterator[None]:
    """Report a missing scene or data set, which Habitat signals in many ways, in one line."""
    try:
        yield
    except (OSError, RuntimeError, AssertionError, KeyError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"Habitat cannot load HM3D ({reason(error)}); {INSTALL}") from error


class HabitatExplore(gym.Env[Any, np.int64]):
    """A PointNav episode on HM3D without its goal and its reward: 500 steps, or until STOP.

    info["measures"]["coverage"] at the end: revealed free cells / free cells on the floor of the start, with rays of
    5 m over 90° (`coverage.Fog`). Habitat's own measure divides by the free cells without borders and overlays, so it
    is a little larger and can exceed 1.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, split: str = "train", size: int = SIZE, render_mode: str | None = None) -> None:
        self.observation_space = observation_space(size, size)
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.size, self.render_mode = size, render_mode
        try:
            import habitat
        except ImportError as error:
            raise UserError(f"HabitatExplore cannot be made ({error}); {INSTALL}") from error
        with one_line():
            self._env: Any = habitat.Env(config=configuration(split, size))
        if not self._env.episodes:
            raise UserError(f"the PointNav episodes of HM3D, split {split}, are missing; {INSTALL}")
        self.map: TopDownMap
        self.path: list[tuple[float, float]] = []  # (row, column) of every observation, in cells

    @property
    def fog(self) -> Fog:
        """The map of this episode, and the part of it that was seen."""
        return self.map.fog

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start the episode that the seed selects."""
        super().reset(seed=seed)
        episodes, sim = self._env.episodes, self._env.sim
        self._env.seed(int(self.np_random.integers(2**31)))
        self._env.episode_iterator = iter([episodes[int(self.np_random.integers(len(episodes)))]])
        with one_line():
            raw = self._env.reset()
        self.map = TopDownMap.of(sim.pathfinder, float(sim.get_agent_state().position[1]))
        self.path, self._count = [], 0
        return self._look(raw), {"position": self.map.position(*self.path[-1])}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One of STOP, forward 0.25 m, left 10°, right 10°; the reward is 0."""
        raw = self._env.step({"action": ACTIONS[int(action)]})
        self._count += 1
        obs = self._look(raw)
        truncated = self._count >= STEPS
        terminated = bool(self._env.episode_over) and not truncated
        info: dict[str, Any] = {"position": self.map.position(*self.path[-1])}
        if terminated or truncated:
            info["measures"] = {"coverage": self.fog.coverage}
        return obs, 0.0, terminated, truncated, info

    def render(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """The camera's view."""
        return self._rgb

    def close(self) -> None:
        """Close the simulator."""
        self._env.close()

    def _look(self, raw: dict[str, Any]) -> dict[str, NDArray[Any]]:
        obs = observation(raw, self.size)
        self._rgb = obs["rgb"]
        state = self._env.sim.get_agent_state()
        self.path.append(self.map.look(np.asarray(state.position, np.float64), quaternion(state.rotation)))
        return obs


def check() -> Iterator[tuple[str, str]]:
    """`critex doctor habitat`: (check, its problem or "") for each check on a real simulator."""
    made = "a scene of HM3D's val split loads"
    try:
        env = HabitatExplore("val")
        obs, _ = env.reset(seed=0)
    except UserError as error:
        yield made, str(error)
        return
    yield made, ""
    forward, left = np.int64(ACTIONS.index("move_forward")), np.int64(ACTIONS.index("turn_left"))
    with closing(env):
        inside = env.observation_space.contains(obs)
        yield "observations have the declared shapes", "" if inside else "they are outside of the space"

        row, column = (int(x) for x in env.path[-1])
        near = env.fog.free[max(row - 3, 0) : row + 4, max(column - 3, 0) : column + 4]
        yield "the agent stands on a free cell of the map", "" if near.any() else "the cell is blocked"

        before, seen = float(obs["compass"][0]), env.fog.coverage
        turned = float(env.step(left)[0]["compass"][0]) - before
        right_turn = abs((turned + np.pi) % (2 * np.pi) - np.pi - math.radians(10)) < 0.02
        yield "a left turn adds 10° to the compass", "" if right_turn else f"it changed by {turned:.3f} rad"

        for _ in range(35):
            env.step(left)
        rose = env.fog.coverage > seen
        yield "a full turn reveals more of the map", "" if rose else "it reveals nothing"

        yield "a step forward moves along the heading on the map", _check_forward(env, forward, left)

        again, _ = env.reset(seed=0)
        same = all(np.array_equal(obs[key], again[key]) for key in obs)
        yield "two resets with one seed agree", "" if same else "they differ: resume would not be exact"

        ended = env.step(np.int64(ACTIONS.index("stop")))[2]
        yield "STOP ends the episode", "" if ended else "it goes on"


def _check_forward(env: HabitatExplore, forward: np.int64, left: np.int64) -> str:
    """Walk in each of 36 directions until a step is not blocked; its direction on the map must be the heading."""
    for _ in range(36):
        state = env._env.sim.get_agent_state()
        heading = heading_of(quaternion(state.rotation))
        row, column = env.path[-1]
        env.step(forward)
        moved = np.array([env.path[-1][1] - column, env.path[-1][0] - row]) * env.map.cell
        if math.hypot(*moved) > 0.2:  # 0.25 m unless it slid along a wall
            along = moved @ [math.cos(heading), math.sin(heading)] / math.hypot(*moved)
            return "" if along > 0.9 else f"the cosine of the angle between them is {along:.2f}"
        env.step(left)
    return "no direction is open"


for _split in SPLITS:
    gym.register(
        f"HabitatExplore-{_split}-v0",
        entry_point="critex.envs.habitat:HabitatExplore",
        kwargs={"split": _split},
    )
