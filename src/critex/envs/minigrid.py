"""MiniGrid: the egocentric view as a one-hot image, and the agent's position in info["position"]."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from critex.envs.position import counts_grids, digest
from critex.errors import unknown

OBJECTS, COLOURS, STATES = 11, 6, 4
"""The three entries of a cell: object, colour, and state (of a door, or the direction of an agent)."""

MISSIONS = ("dropped", "words")

WORDS = (
    "a after and at avoid ball behind blue box door drop end fetch find from front get go goal green grey hallway in "
    "key lava left matching must near next object of on open opening pick purple put reach red right room rooms square "
    "the then to traverse unlock up use yellow you your"
).split()
"""Every word of the missions of MiniGrid and BabyAI; any other counts as one more, unknown word."""


class MiniGrid(gym.Wrapper[Any, Any, Any, Any]):
    """Observations [7, 7, 21] of zeros and ones; adds info["position"] = (row, column).

    `mission="words"` makes them a dict: `image`, and `mission`, a bag of words of the mission. With `position="grid"` the
    position has a third number, a hash of the whole grid: doors and other objects, what the agent carries and where it
    looks.
    """

    def __init__(self, env: gym.Env[Any, Any], mission: str = "dropped", position: str = "cell") -> None:
        super().__init__(env)
        if mission not in MISSIONS:
            raise unknown("mission", mission, MISSIONS)
        self._words, self._whole_grid = mission == "words", counts_grids(position)
        # Each possible cell as one number, and its one-hot encoding.
        self._code = np.array([COLOURS * STATES, STATES, 1])
        kinds = np.indices((OBJECTS, COLOURS, STATES)).reshape(3, -1)
        rows = [np.eye(n, dtype=np.uint8)[k] for n, k in zip((OBJECTS, COLOURS, STATES), kinds, strict=True)]
        self._rows = np.concatenate(rows, axis=1)
        assert isinstance(env.observation_space, spaces.Dict)
        height, width, _ = env.observation_space["image"].shape or ()
        image = spaces.Box(0, 1, (height, width, self._rows.shape[1]), np.uint8)
        mission_space = spaces.Box(0, 1, (len(WORDS) + 1,), np.uint8)
        self.observation_space = (
            spaces.Dict({"image": image, "mission": mission_space}) if self._words else image
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation, and the position."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._seen(obs), info | self._position()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The observation and the position after the step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._seen(obs), reward, terminated, truncated, info | self._position()

    def _seen(self, obs: dict[str, Any]) -> Any:
        image = self._rows[obs["image"] @ self._code]
        return {"image": image, "mission": bag_of_words(obs["mission"])} if self._words else image

    def _position(self) -> dict[str, Any]:
        game: Any = self.env.unwrapped
        column, row = game.agent_pos
        return {"position": np.array((row, column, grid_hash(game)) if self._whole_grid else (row, column))}


def grid_hash(game: Any) -> int:
    """A hash of the objects on the grid, of the one that the agent carries, and of its direction."""
    objects = [(i, *cell.encode()) for i, cell in enumerate(game.grid.grid) if cell and cell.type != "wall"]
    carried = game.carrying.encode() if game.carrying else ()
    return digest(repr((game.agent_dir, carried, objects)).encode())


def bag_of_words(mission: str) -> NDArray[np.uint8]:
    """Which words of the vocabulary occur in a mission, [words + 1]; the last entry stands for all other words."""
    bag = np.zeros(len(WORDS) + 1, np.uint8)
    for word in mission.lower().replace(",", " ").split():
        bag[WORDS.index(word) if word in WORDS else -1] = 1
    return bag
