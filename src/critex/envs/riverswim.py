"""RiverSwim: a chain with a current to the left, a small reward at the left end and a large one at the right."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from critex.envs.picture import picture
from critex.errors import UserError

LEFT, RIGHT = 0, 1


class RiverSwim(gym.Env[NDArray[np.float32], np.int64]):
    """N states in a row, start at the left, `horizon` steps (then truncated).

    Left always succeeds. Right moves with probability 0.35, stays with 0.6, is swept back with 0.05; at the
    left bank it moves with 0.6 and stays with 0.4, at the right bank it stays with 0.6 and is swept back with
    0.4. Left at the left bank pays 0.005, right at the right bank pays 1.

    Observation: one-hot state [N]. info["position"]: (state,). The exact model: `P` [S, A, S] and `R` [S, A].
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, size: int = 6, horizon: int = 20, render_mode: str | None = None) -> None:
        if size < 2 or horizon < 1:
            raise UserError(f"RiverSwim needs size ≥ 2 and horizon ≥ 1, not {size} and {horizon}")
        self.size, self.horizon, self.render_mode = size, horizon, render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (size,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.P, self.R = river(size)
        self._cumulative = self.P.cumsum(axis=-1)
        self.state = self.elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Back to the left bank."""
        super().reset(seed=seed)
        self.state = self.elapsed = 0
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Swim one stroke."""
        reward = float(self.R[self.state, action])
        cumulative = self._cumulative[self.state, action]
        draw = self.np_random.random() * cumulative[-1]  # × the total: rounding must not point past the end
        self.state = int(np.searchsorted(cumulative, draw, side="right"))
        self.elapsed += 1
        return self._observation(), reward, False, self.elapsed >= self.horizon, self._info()

    def render(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """The swimmer and the goal, as an rgb picture."""
        river = np.zeros((1, self.size))
        river[0, -1] = 0.5
        river[0, self.state] = 1.0
        return picture(river)

    def _observation(self) -> NDArray[np.float32]:
        observation = np.zeros(self.size, np.float32)
        observation[self.state] = 1.0
        return observation

    def _info(self) -> dict[str, Any]:
        return {"position": np.array((self.state,))}


def river(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The transition probabilities P [S, A, S] and rewards R [S, A] of RiverSwim."""
    P, R = np.zeros((size, 2, size)), np.zeros((size, 2))
    for s in range(size):
        P[s, LEFT, max(s - 1, 0)] = 1.0
        back, stay, forth = (
            (0.0, 0.4, 0.6) if s == 0 else (0.4, 0.6, 0.0) if s == size - 1 else (0.05, 0.6, 0.35)
        )
        for step, probability in ((-1, back), (0, stay), (1, forth)):
            if probability:
                P[s, RIGHT, s + step] = probability
    R[0, LEFT], R[-1, RIGHT] = 0.005, 1.0
    return P, R
