"""A line of cells with short episodes, whose observations say exactly where, when and in which episode they are."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np

Kind = Literal["vector", "image", "dict"]


class Line(gym.Env[Any, Any]):
    """Episodes of 3, 4, 5, 3, … steps, each with reward `reward`; they end by termination, or by the clock."""

    def __init__(
        self,
        *,
        continuous: bool = False,
        truncate: bool = False,
        kind: Kind = "vector",
        reward: Any = 1.0,
        random_start: bool = False,
    ) -> None:
        vector = gym.spaces.Box(-10.0, 1000.0, (3,), np.float32)
        image = gym.spaces.Box(0, 255, (3, 36, 36), np.uint8)
        spaces: dict[str, gym.Space[Any]] = {
            "vector": vector,
            "image": image,
            "dict": gym.spaces.Dict({"a": vector, "b": gym.spaces.Box(-1.0, 1.0, (2,), np.float32)}),
        }
        self.observation_space = spaces[kind]
        self.action_space = (
            gym.spaces.Box(-2.0, 2.0, (1,), np.float32) if continuous else gym.spaces.Discrete(2)
        )
        self.kind, self.truncate, self.reward, self.random_start = kind, truncate, reward, random_start
        self.episode = -1

    def _obs(self) -> Any:
        vector = np.array([self.position, self.t, self.episode], np.float32)
        match self.kind:
            case "vector":
                return vector
            case "image":
                return np.full((3, 36, 36), (17 * self.episode + 3 * self.t) % 256, np.uint8)
            case "dict":
                return {"a": vector, "b": np.array([np.sin(self.t), np.cos(self.episode)], np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.t, self.episode = 0.0, 0, self.episode + 1
        if self.random_start:
            self.position = float(self.np_random.uniform(-1, 1))
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.position += float(np.sum(action)) - 0.5
        self.t += 1
        over = self.t == 3 + self.episode % 3
        return self._obs(), self.reward, over and not self.truncate, over and self.truncate, {}
