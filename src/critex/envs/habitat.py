"""Habitat: reward-free exploration of HM3D scenes, the paper's third setting; needs habitat-lab.

    critex train ppo_recurrent --env HabitatExplore-train-v0 --network resnet50 --core-layers 2 --core-width 512

A thin adapter for habitat-lab 0.3 or newer: everything that can be computed from arrays alone (`overrides`,
`observation`, `heading_of`, `cell_of`) is a separate function with its own tests. The part that talks to the
simulator is not covered by critex's tests, which run without habitat-sim; `check` tests it on a real simulator.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from critex.envs.coverage import RANGE, Fog
from critex.errors import UserError, unknown

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
            f"Habitat's images are {rgb.shape} and {depth.shape}, where {size} × {size} was asked for"
        )
    return obs


def heading_of(rotation: NDArray[np.float64]) -> float:
    """The heading on the map of a quaternion (w, x, y, z), measured from rising columns (x) to rising rows (z).

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
        try:
            self._env: Any = habitat.Env(config=configuration(split, size))
        except (FileNotFoundError, RuntimeError, AssertionError) as error:
            raise UserError(
                f"Habitat cannot load HM3D ({' '.join(str(error).split())}); {INSTALL}"
            ) from error
        if not self._env.episodes:
            raise UserError(f"the PointNav episodes of HM3D, split {split}, are absent; {INSTALL}")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start the episode that the seed selects."""
        super().reset(seed=seed)
        episodes = self._env.episodes
        self._env.seed(int(self.np_random.integers(2**31)))
        self._env.episode_iterator = iter([episodes[int(self.np_random.integers(len(episodes)))]])
        raw = self._env.reset()
        pathfinder = self._env.sim.pathfinder
        lower, upper = (np.asarray(bound, np.float64) for bound in pathfinder.get_bounds())
        self._lower, self._cell = lower, metres_per_cell(lower, upper)
        height = float(self._env.sim.get_agent_state().position[1])
        free = np.asarray(pathfinder.get_topdown_view(meters_per_pixel=self._cell, height=height), bool)
        self.fog, self.path = Fog(free, RANGE / self._cell), list[tuple[float, float]]()
        self._count = 0
        return self._look(raw), {"position": self._position()}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One of STOP, forward 0.25 m, left 10°, right 10°; the reward is 0."""
        raw = self._env.step({"action": ACTIONS[int(action)]})
        self._count += 1
        obs = self._look(raw)
        truncated = self._count >= STEPS
        terminated = bool(self._env.episode_over) and not truncated
        info: dict[str, Any] = {"position": self._position()}
        if terminated or truncated:
            info["measures"] = {"coverage": self.fog.coverage}
        return obs, 0.0, terminated, truncated, info

    def render(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """What the camera sees."""
        return self._rgb

    def close(self) -> None:
        """Close the simulator."""
        self._env.close()

    def _look(self, raw: dict[str, Any]) -> dict[str, NDArray[Any]]:
        obs = observation(raw, self.size)
        self._rgb = obs["rgb"]
        state = self._env.sim.get_agent_state()
        turned = state.rotation
        quaternion = np.array([turned.w, turned.x, turned.y, turned.z], np.float64)
        row, column = cell_of(np.asarray(state.position, np.float64), self._lower, self._cell)
        rows, columns = self.fog.free.shape
        row, column = min(max(row, 0.0), rows - 0.001), min(max(column, 0.0), columns - 0.001)
        self.fog.look(row, column, heading_of(quaternion))
        self.path.append((row, column))
        return obs

    def _position(self) -> NDArray[np.int64]:
        """Half-metre cells: the map's own are centimetres wide."""
        row, column = self.path[-1]
        return np.array([int(row * self._cell * 2), int(column * self._cell * 2)])


def check() -> list[str]:
    """The findings of `critex doctor habitat` on a real simulator, one line each; empty if all is well."""
    try:
        env = HabitatExplore("val")
    except UserError as error:
        return [str(error)]
    findings = []
    try:
        obs, _ = env.reset(seed=0)
        if not env.observation_space.contains(obs):
            findings.append("observations are outside of the space that the adapter declares")
        first = env.fog.coverage
        compass = float(obs["compass"][0])
        turned = float(env.step(np.int64(ACTIONS.index("turn_left")))[0]["compass"][0])
        if abs((turned - compass + np.pi) % (2 * np.pi) - np.pi - math.radians(10)) > 0.02:
            findings.append(
                f"a left turn changed the compass by {turned - compass:.3f} instead of {math.radians(10):.3f}"
            )
        for _ in range(36):
            env.step(np.int64(ACTIONS.index("turn_left")))
        if not env.fog.coverage > first:
            findings.append("a full turn reveals nothing: map and heading do not agree")
        row, column = (int(x) for x in env.path[-1])
        near = env.fog.free[max(row - 3, 0) : row + 4, max(column - 3, 0) : column + 4]
        if not near.any():
            findings.append("the agent stands on a blocked cell: map and position do not agree")
        again, _ = env.reset(seed=0)
        if not all(np.array_equal(obs[key], again[key]) for key in obs):
            findings.append("two resets with one seed differ: resume is not exact")
        if not env.step(np.int64(ACTIONS.index("stop")))[2]:
            findings.append("STOP does not end the episode")
    finally:
        env.close()
    return findings


for _split in SPLITS:
    gym.register(
        f"HabitatExplore-{_split}-v0",
        entry_point="critex.envs.habitat:HabitatExplore",
        kwargs={"split": _split},
    )
