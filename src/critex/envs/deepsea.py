"""DeepSea, a minimal test of exploration: one of 2^N action sequences pays, and every step towards it costs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from critex.envs.picture import picture
from critex.errors import UserError


class DeepSea(gym.Env[NDArray[np.float32], np.int64]):
    """An N×N grid, entered at the top left, left at the bottom after exactly N steps (rules of bsuite).

    Every step sinks one row and drifts one column: right costs 0.01/N, left is free. Going right in the
    bottom right corner pays 1, so always-right returns 0.99 and every other sequence at most 0. Which of the
    two actions means right is drawn for each cell from `mapping_seed`, and is the same in every episode,
    whatever its seed; `randomize_actions=False` makes it action 1 everywhere. Nothing else is random.

    Observation: one-hot cell, flat [N·N], all zero once the episode is over. info["position"]: (row, column).
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        size: int = 10,
        mapping_seed: int = 42,
        randomize_actions: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if size < 2:
            raise UserError(f"DeepSea needs a size of at least 2, not {size}")
        self.size, self.render_mode = size, render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.right = np.ones((size, size), np.int64)  # the action that means right, by cell
        if randomize_actions:  # drawn as in bsuite, so that a seed gives the same task in both
            self.right = np.random.RandomState(mapping_seed).binomial(1, 0.5, (size, size))
        self.row = self.column = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Back to the start; the seed changes nothing."""
        super().reset(seed=seed)
        self.row = self.column = 0
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Sink one row, drift one column."""
        reward, edge = 0.0, self.size - 1
        if action == self.right[self.row, self.column]:
            reward = float(self.column == edge) - 0.01 / self.size
            self.column = min(self.column + 1, edge)
        else:
            self.column = max(self.column - 1, 0)
        self.row += 1
        return self._observation(), reward, self.row == self.size, False, self._info()

    def render(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """The swimmer and the goal, as an rgb picture."""
        grid = np.zeros((self.size, self.size))
        grid[-1, -1] = 0.5
        if self.row < self.size:
            grid[self.row, self.column] = 1.0
        return picture(grid)

    def _observation(self) -> NDArray[np.float32]:
        observation = np.zeros(self.size * self.size, np.float32)
        if self.row < self.size:
            observation[self.row * self.size + self.column] = 1.0
        return observation

    def _info(self) -> dict[str, Any]:
        return {"position": np.array((self.row, self.column))}
