"""Settings and made-up rollouts for explorers: vectors, images and dicts, discrete and continuous actions."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from critex.data import Transition
from critex.data.tree import Tree
from critex.embedding import Embedding
from critex.explorers import Setting

D, A, N = 4, 3, 2
KINDS = 7  # of observations
IMAGE = gym.spaces.Box(0, 1, (5, 5, 2), np.uint8)
SPACES: dict[str, gym.Space[Any]] = {
    "vector": gym.spaces.Box(-1, 1, (D,)),
    "image": IMAGE,
    "dict": gym.spaces.Dict({"image": IMAGE, "compass": gym.spaces.Discrete(4)}),
}
ACTIONS: dict[str, gym.Space[Any]] = {
    "discrete": gym.spaces.Discrete(A),
    "continuous": gym.spaces.Box(-1, 1, (2,)),
}


def place(
    space: str = "vector",
    actions: str = "discrete",
    critic: Callable[..., Tensor] | None = None,
    num_envs: int = N,
    seed: int = 0,
) -> Setting:
    """A setting in which explorers can be made."""
    embedding = Embedding.of(critic or (lambda obs: obs), D, ACTIONS[actions], takes_action=False)
    return Setting(embedding, SPACES[space], num_envs, seed)


def observations(space: gym.Space[Any], which: Tensor, rng: torch.Generator) -> Tree:
    """The observations number `which` [...] of a few random ones, so that they recur."""
    if isinstance(space, gym.spaces.Dict):
        return {key: observations(child, which, rng) for key, child in space.items()}
    if isinstance(space, gym.spaces.Discrete):
        return which % int(space.n)
    shape = (KINDS, *(space.shape or ()))
    if space.dtype == np.uint8:
        return torch.randint(2, shape, generator=rng, dtype=torch.uint8)[which]
    return torch.randn(shape, generator=rng)[which]


def rollout(
    t: int, space: str = "vector", actions: str = "discrete", n: int = N, seed: int = 0
) -> Transition:
    """[t, n] transitions with episode ends in them, and positions on a grid of 3 × 3."""
    rng = torch.Generator().manual_seed(seed)
    ends = torch.rand(t, n, generator=rng) < 0.2
    continuous = actions == "continuous"
    obs, next_obs = (
        observations(
            SPACES[space], torch.randint(KINDS, (t, n), generator=rng), torch.Generator().manual_seed(99)
        )
        for _ in range(2)
    )
    return Transition(
        obs=obs,
        action=torch.randn(t, n, 2, generator=rng) if continuous else torch.randint(A, (t, n), generator=rng),
        reward=torch.randn(t, n, generator=rng),
        next_obs=next_obs,
        terminated=ends,
        truncated=torch.zeros_like(ends),
        episode_start=torch.cat([torch.ones(1, n, dtype=torch.bool), ends[:-1]]),
        info={
            "position": torch.randint(3, (t, n, 2), generator=rng),
            "start_position": torch.zeros(t, n, 2, dtype=torch.int64),
        },
    )


def episode(obs: list[Any], action: list[int] | None = None, **info: list[Any]) -> Transition:
    """One env that sees `obs` one after the other, [T, 1] transitions; `info` of each s'."""
    seen = torch.tensor(obs)
    t = len(obs) - 1
    return Transition(
        obs=seen[:-1].unsqueeze(1),
        action=torch.tensor(action or [0] * t).unsqueeze(1),
        reward=torch.zeros(t, 1),
        next_obs=seen[1:].unsqueeze(1),
        terminated=torch.zeros(t, 1, dtype=torch.bool),
        truncated=torch.zeros(t, 1, dtype=torch.bool),
        episode_start=(torch.arange(t) == 0).unsqueeze(1),
        info={key: torch.tensor(value).unsqueeze(1) for key, value in info.items()},
    )


def at(steps: Transition, t: int) -> Transition:
    """The vector step at time t."""
    return steps.map(itemgetter(t))


def flat(steps: Transition) -> Transition:
    """[T, N] as a batch [T·N]."""
    return steps.map(lambda x: x.flatten(0, 1))
