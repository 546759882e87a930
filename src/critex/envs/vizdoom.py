"""Reward-free exploration of Doom levels through a camera: VizdoomExplore-train-v0, -val-v0 and -test-v0.

The levels are those of Freedoom that the vizdoom package ships, without monsters and with their doors open. The split
into training, validation and test levels is in vizdoom_levels.toml.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import vizdoom as vzd
from gymnasium import spaces
from numpy.typing import NDArray

from critex.envs.coverage import UNITS_PER_METRE, FloorPlan, Fog, floor_plan
from critex.envs.habitat import observation_space
from critex.envs.wad import level, read_maps, static, write_wad
from critex.errors import UserError, unknown

SPLITS = ("train", "val", "test")
SENSORS = ("image", "habitat")
FORWARD, LEFT, RIGHT = range(3)
TURN = 10.0  # degrees
TICS = 4  # of the game, 35 a second, in one step
SETTLE = 20  # tics before the first observation: a player who was warped cannot move for a while


class VizdoomExplore(gym.Env[Any, np.int64]):
    """A level drawn from a split, a random start position in it, 500 steps, and no reward.

    Actions: forward (about 1 m at full speed: the player has momentum), left and right (10°). Observations with
    `sensors="image"`: [H, W, 4] uint8, RGB and depth. With `sensors="habitat"` a dict as in the paper's Habitat runs:
    `rgb` [H, W, 3] uint8, `depth` [H, W, 1] in [0, 1], `gps` [2] (metres ahead and to the left of the start) and
    `compass` [1] (radians since the start, counter-clockwise).

    `resolution` is "WIDTHxHEIGHT"; the game renders a multiple of it, which is averaged down. `levels` replaces the
    split by names joined with commas. info["position"]: (index of the level, row, column) of the floor plan's cell. At the
    end of an episode info["measures"]["coverage"] is the share of the reachable floor that was seen (`coverage.Fog`).
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 9}  # noqa: RUF012

    def __init__(
        self,
        split: str = "train",
        resolution: str = "80x60",
        sensors: str = "image",
        steps: int = 500,
        levels: str = "",
        render_mode: str | None = None,
    ) -> None:
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        if sensors not in SENSORS:
            raise unknown("sensors", sensors, SENSORS)
        if steps < 1:
            raise UserError(f"steps is {steps}; an episode needs at least 1")
        self.levels = tuple(levels.split(",")) if levels else split_levels()[split]
        for name in self.levels:
            if name not in all_levels():
                raise unknown("level", name, all_levels())
        self.screen, self.factor = screen(resolution)
        self.sensors, self.steps, self.render_mode = sensors, steps, render_mode
        width, height = (int(side) // self.factor for side in self.screen.name[4:].split("X"))
        image = spaces.Box(0, 255, (height, width, 4), np.uint8)
        self.observation_space = image if sensors == "image" else observation_space(height, width)
        self.action_space = spaces.Discrete(3)
        self._game: vzd.DoomGame | None = None
        self.plan: FloorPlan
        self.fog: Fog  # over the floor plan: the part seen in this episode
        self.path: list[tuple[float, float]] = []  # (row, column) of every observation, in cells
        self._start: tuple[float, float, float] | None = None  # x, y, heading

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new level and a new start, both drawn from the seed."""
        super().reset(seed=seed)
        index = int(self.np_random.integers(len(self.levels)))
        self.level, self.plan = index, plan_of(self.levels[index])
        cells = np.argwhere(self.plan.start)
        x, y = self.plan.point(*cells[self.np_random.integers(len(cells))].tolist())
        angle = float(self.np_random.uniform(-180, 180))
        game = self._game or self._open()
        game.set_seed(int(self.np_random.integers(2**31)))
        game.set_doom_map(self.levels[index])
        game.new_episode()
        game.send_game_command(f"warp {x} {y}")
        game.make_action([0, 0], SETTLE)
        game.make_action([0, -angle], 1)
        game.make_action([0, 0], 1)
        self._count, self.fog, self.path, self._start = 0, self.plan.fog(), [], None
        return self._look(), {"position": self._position()}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Walk or turn for four tics of the game."""
        if self._game is None:
            raise RuntimeError("call reset before step")
        turn = {LEFT: -TURN / TICS, RIGHT: TURN / TICS}.get(int(action), 0.0)
        self._game.make_action([float(action == FORWARD), turn], TICS)
        self._count += 1
        truncated = self._count >= self.steps
        obs = self._look()
        info: dict[str, Any] = {"position": self._position()}
        if truncated:
            info["measures"] = {"coverage": self.fog.coverage}
        return obs, 0.0, False, truncated, info

    def render(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """The camera's view, at the resolution of the game."""
        return self._rgb

    def close(self) -> None:
        """End the game's process."""
        if self._game is not None:
            self._game.close()
            self._game = None

    def _open(self) -> vzd.DoomGame:
        game = vzd.DoomGame()
        game.set_doom_game_path(str(wads()[1]))  # it has the textures of the first game, too
        game.set_doom_scenario_path(str(static_wad()))
        game.set_doom_config_path(str(static_wad().with_suffix(".ini")))
        game.add_game_args("+gl_cachenodes 0")  # no files in the working directory
        game.set_screen_resolution(self.screen)
        game.set_screen_format(vzd.ScreenFormat.RGB24)
        game.set_depth_buffer_enabled(True)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_render_hud(False)
        game.set_render_weapon(False)
        game.set_render_crosshair(False)
        game.set_render_messages(False)
        game.set_episode_timeout(0)
        game.set_mode(vzd.Mode.PLAYER)
        game.set_available_buttons([vzd.Button.MOVE_FORWARD, vzd.Button.TURN_LEFT_RIGHT_DELTA])
        variables = (vzd.GameVariable.POSITION_X, vzd.GameVariable.POSITION_Y, vzd.GameVariable.ANGLE)
        game.set_available_game_variables(list(variables))
        try:
            game.init()
        except (vzd.FileDoesNotExistException, vzd.ViZDoomErrorException) as error:
            raise UserError(f"the game does not start: {' '.join(str(error).split())}") from error
        self._game = game
        return game

    def _look(self) -> Any:
        assert self._game is not None
        state = self._game.get_state()
        if state is None or state.depth_buffer is None:
            raise UserError(
                "the game gives no depth buffer; vizdoom 1.3 or newer does: pip install -U vizdoom"
            )
        self._rgb = state.screen_buffer
        x, y, degrees = (float(value) for value in np.asarray(state.game_variables))
        pose = x, y, math.radians(degrees)
        self._start = self._start or pose
        row, column = self.plan.cell(x, y)
        self.fog.look(row, column, pose[2])
        self.path.append((row, column))
        rgb = shrink(state.screen_buffer, self.factor)
        depth = shrink(state.depth_buffer[..., None], self.factor)
        if self.sensors == "image":
            return np.concatenate([rgb, depth], axis=-1)
        gps, compass = relative_pose(self._start, pose)
        return {"rgb": rgb, "depth": depth.astype(np.float32) / 255, "gps": gps, "compass": compass}

    def _position(self) -> NDArray[np.int64]:
        row, column = self.path[-1]
        return np.array([self.level, int(row), int(column)])


def relative_pose(
    start: tuple[float, float, float], now: tuple[float, float, float]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`gps` [2], metres ahead and to the left as seen at the start, and `compass` [1], the turn since in (−π, π]."""
    dx, dy = (now[0] - start[0]) / UNITS_PER_METRE, (now[1] - start[1]) / UNITS_PER_METRE
    cos, sin = np.cos(start[2]), np.sin(start[2])
    turn = np.pi - (np.pi - (now[2] - start[2])) % (2 * np.pi)
    return np.array([cos * dx + sin * dy, cos * dy - sin * dx], np.float32), np.array([turn], np.float32)


def shrink(image: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """The mean of each factor × factor block of pixels, [H, W, C] → [H/factor, W/factor, C]."""
    if factor == 1:
        return image
    total = np.zeros((image.shape[0] // factor, image.shape[1] // factor, image.shape[2]), np.uint16)
    for i, j in np.ndindex(factor, factor):
        total += image[i::factor, j::factor]
    return (total // factor**2).astype(np.uint8)


def screen(resolution: str) -> tuple[Any, int]:
    """The smallest size that the game can render and that is a whole multiple of "WIDTHxHEIGHT", and the factor."""
    fits = []
    for name, member in vzd.ScreenResolution.__members__.items():
        width, height = map(int, name[4:].split("X"))
        for factor in range(1, 11):
            if f"{width / factor:g}x{height / factor:g}" == resolution:
                fits.append((width * height, factor, member))
    if not fits:
        raise UserError(
            f"resolution {resolution!r} is not supported; 40x30, 64x48, 80x60, 128x96 and 160x120 are"
        )
    _, factor, member = min(fits, key=lambda fit: fit[:2])
    return member, factor


def wads() -> tuple[Path, Path]:
    """The files of Freedoom's first and second game in the vizdoom package."""
    folder = Path(vzd.__file__).parent
    found = folder / "freedoom1.wad", folder / "freedoom2.wad"
    for path in found:
        if not path.exists():
            raise UserError(f"{path} is missing; put it back with: pip install --force-reinstall vizdoom")
    return found


@cache
def split_levels() -> dict[str, tuple[str, ...]]:
    """Names of levels by split."""
    table = tomllib.loads((files("critex.envs") / "vizdoom_levels.toml").read_text("utf-8"))
    return {split: tuple(names) for split, names in table.items()}


def all_levels() -> tuple[str, ...]:
    """Every level, sorted."""
    return tuple(sorted(name for names in split_levels().values() for name in names))


@cache
def static_maps() -> dict[str, dict[str, bytes]]:
    """The lumps of all levels, made static."""
    return {name: static(lumps) for path in wads() for name, lumps in read_maps(path).items()}


@cache
def plan_of(name: str) -> FloorPlan:
    """The floor plan of a level."""
    return floor_plan(level(name, static_maps()))


@cache
def static_wad() -> Path:
    """All levels as one WAD file, written once per version of Freedoom and user."""
    sizes = "/".join(f"1:{path.stat().st_size}" for path in wads())
    digest = hashlib.sha256(sizes.encode()).hexdigest()[:12]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "critex"
    path = folder / f"freedoom-static-{digest}.wad"
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as aside:  # another process may be writing it, too
                write_wad(Path(aside) / path.name, static_maps().items())
                (Path(aside) / path.name).replace(path)
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror}); set XDG_CACHE_HOME") from error
    return path


for _split in SPLITS:
    gym.register(
        f"VizdoomExplore-{_split}-v0",
        entry_point="critex.envs.vizdoom:VizdoomExplore",
        kwargs={"split": _split},
    )
