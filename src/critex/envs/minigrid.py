"""MiniGrid: the egocentric image alone, uint8 [7, 7, 3], and where the agent stands in info["position"]."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class MiniGrid(gym.Wrapper[Any, Any, Any, Any]):
    """Drops mission and compass from the observation; adds info["position"] = (x, y)."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Dict)
        self.observation_space = env.observation_space["image"]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The image of the first observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        return obs["image"], info | self._position()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The image, and the position after the step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs["image"], reward, terminated, truncated, info | self._position()

    def _position(self) -> dict[str, Any]:
        return {"position": np.array(self.env.unwrapped.agent_pos)}  # type: ignore[attr-defined]
