"""Observations as vectors."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from critex.errors import UserError
from critex.networks import Flatten


@pytest.mark.parametrize(
    ("space", "obs", "flat"),
    [
        (spaces.Box(-1, 1, (2, 2)), [[[1.0, 2.0], [3.0, 4.0]]], [[1.0, 2.0, 3.0, 4.0]]),
        (spaces.Discrete(3), [2], [[0.0, 0.0, 1.0]]),
        (spaces.Discrete(3, start=5), [6], [[0.0, 1.0, 0.0]]),
        (spaces.MultiDiscrete([2, 3], start=[0, 4]), [[1, 4]], [[0.0, 1.0, 1.0, 0.0, 0.0]]),
        (spaces.Box(0, 255, (2,), np.uint8), [[255, 0]], [[1.0, 0.0]]),  # bytes, as of an Atari RAM
        (spaces.Box(-2, 2, (1, 2), np.int8), [[[-2, 1]]], [[-1.0, 0.5]]),
        (spaces.Box(0, 1, (2,), np.uint8), [[1, 0]], [[1.0, 0.0]]),
        (spaces.MultiDiscrete([2, 3]), [[1, 0]], [[0.0, 1.0, 1.0, 0.0, 0.0]]),
        (spaces.MultiBinary(3), [[1, 0, 1]], [[1.0, 0.0, 1.0]]),
    ],
)
def test_of_one_space(space: gym.Space[Any], obs: Any, flat: Any) -> None:
    flatten = Flatten(space)
    got = flatten(torch.tensor(obs))
    assert got.tolist() == flat and got.shape[-1] == flatten.dim and not list(flatten.parameters())


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(3), "MultiBinary"),
        (spaces.Box(-1, 1, (10_001,)), "10,001 numbers, more than 10,000; wrap the environment"),
        (spaces.Box(0, 5976, (21, 79), np.int16), "integers from 0 to 5,976; wrap the environment"),
        (spaces.Box(-1, 1, (84, 84)), "7,056 numbers, more than 4,096"),
    ],
)
def test_what_is_no_vector_is_refused(space: gym.Space[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Flatten(space)


class Reach(gym.Env[Any, Any]):
    """A point on a line, seen through a dict."""

    observation_space = spaces.Dict({"x": spaces.Box(-1, 1, (1,)), "side": spaces.Discrete(2)})
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t = self.np_random.uniform(-1, 1), 0
        return self._seen(), {}

    def _seen(self) -> dict[str, Any]:
        return {"x": np.array([self.x], np.float32), "side": int(self.x > 0)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.x = float(np.clip(self.x + 0.1 * action[0], -1, 1))
        return self._seen(), -abs(self.x), False, self.t == 20, {}


gym.register("FlattenReach-v0", Reach)


@pytest.mark.parametrize("algorithm", ["sac", "td3", "dsac", "ppo"])
@pytest.mark.parametrize("explorer", ["cae_plus", "rnd"])
def test_every_algorithm_takes_dicts(algorithm: str, explorer: str, tmp_path: Any) -> None:
    from critex.cli import main

    small = "--rollout 32 --minibatches 2" if algorithm == "ppo" else "--learning-starts 60 --batch-size 16"
    flags = f"train {algorithm} --env FlattenReach-v0 --explorer {explorer} --steps 100 --no-tensorboard --no-progress"
    main([*flags.split(), *small.split(), "--out", str(tmp_path / "run")])
    assert (tmp_path / "run" / "card.json").exists()
