"""Vectorised environments: true final observations, extrinsic returns, states that can be saved exactly."""

from __future__ import annotations

import math
import os
import warnings
import weakref
from collections.abc import Callable
from dataclasses import astuple, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array
from numpy.typing import NDArray
from torch import Tensor

from critex.data import Episode, Transition, Tree, derive_seed
from critex.data.tree import tree_map
from critex.envs.families import make
from critex.envs.workers import Group, Local, Outcome, SharedArrays, Worker, close_all
from critex.errors import UserError

HISTORY = 100_000
"""Length of the longest episode whose actions are kept, for exact resume."""


class Envs:
    """`num_envs` copies of a gymnasium environment, in this process or split over `workers` processes.

        envs = Envs("Hopper-v4", num_envs=4, seed=1)
        transition, obs = envs.step(policy(envs.obs))

    `obs` (also `envs.obs`) is the observation to act on: an environment whose episode ended has been reset, and
    `transition.next_obs` has its true final observation. Float64 observations become float32, images stay
    uint8, Discrete ones are int64 [N], Dict spaces give dicts without their text. Actions are tensors [N, …].
    Of info only `position` (integers [k], otherwise ignored) is batched, with the `start_position` of the running
    episode if the env reports it at reset.

    Each episode has its own seed, a hash of (seed, env, episode). A saved state is therefore the episode's
    number and the actions taken in it: `load_state_dict` resets and replays them, bit for bit, at the cost of
    stepping through the running episodes once more. It does not depend on the number of workers, so a state saved
    with one number can be restored with another. After 100,000 steps of one episode its actions are dropped; from
    then until it ends, a restored state starts the env's next episode instead, with a warning.

    The results are those of gymnasium's SyncVectorEnv with AutoresetMode.DISABLED and a `reset_mask`.
    """

    def __init__(
        self, env_id: str, num_envs: int = 1, seed: int = 0, workers: int = 1, **env_kwargs: Any
    ) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs must be at least 1, not {num_envs}")
        if workers < 1:
            raise UserError(f"env_workers must be at least 1, not {workers}")
        if seed < 0:
            raise UserError(f"seed must not be negative, got {seed}")
        self.env_id, self.num_envs, self.seed = env_id, num_envs, seed
        # Also with workers, so that a wrong id or keyword raises in this process.
        first = make(env_id, **env_kwargs)
        self.observation_space = _plain(first.observation_space, env_id)
        self.action_space = first.action_space
        self._to_env = _action_converter(self.action_space, env_id)
        self._arrays: Any  # the groups write their observations here, [N, …]
        self._groups: list[Group]
        if workers == 1:
            self._arrays = create_empty_array(self.observation_space, num_envs)
            envs = [first, *(make(env_id, **env_kwargs) for _ in range(num_envs - 1))]
            self._groups = [Local(envs, 0, self._arrays)]
        else:
            first.close()
            memory = SharedArrays(self.observation_space, num_envs)
            self._arrays = memory.arrays()
            bounds = np.linspace(0, num_envs, min(workers, num_envs) + 1).astype(int).tolist()
            self._groups = [Worker(env_id, env_kwargs, a, b - a, memory) for a, b in pairwise(bounds)]
        self._close = weakref.finalize(self, close_all, self._groups, os.getpid())
        self.obs: Tree
        self._start: Tensor  # [N] bool: the next step is the first of an episode
        self._episode: list[int]  # the number of the episode each env is in
        self._length: NDArray[np.int64]  # steps taken in it
        self._actions: list[list[Any] | None]  # taken in it; None once there are too many to keep
        self._return: NDArray[np.float64]  # earned in it so far
        self._finished: list[Episode]  # since the last `pop_episodes`
        self._clock: int  # steps since then
        self._starts: list[Any] = [None] * num_envs  # its start position, if the env reports one
        self._start_position: Tensor | None  # the same as one tensor [N, k]
        self._coordinates: int | None = None  # k of `position`, 0 if there is none; set by the first step
        self.load_state_dict(
            {"episode": [0] * num_envs, "actions": [torch.empty(0)] * num_envs, "finished": [], "clock": 0}
        )

    def step(self, action: Tensor) -> tuple[Transition, Tree]:
        """Take one action [N, …] in every env; return the transition, and the observations to act on next."""
        n = self.num_envs
        if len(action) != n:
            raise ValueError(f"{len(action)} actions for {n} envs")
        taken = self._to_env(action)
        for group in self._groups:
            group.send("step", taken[group.first : group.first + group.count])
        outcomes: list[Outcome] = [outcome for group in self._groups for outcome in group.receive()]
        for history, one in zip(self._actions, taken, strict=True):
            if history is not None:
                history.append(one)
        self._length += 1
        reward = np.array([outcome[0] for outcome in outcomes])
        terminated = np.array([outcome[1] for outcome in outcomes])
        truncated = np.array([outcome[2] for outcome in outcomes])
        self._return += reward
        if not math.isfinite(np.add.reduce(self._return)):
            raise UserError(f"{self.env_id} returned a reward that is not finite; correct the environment")
        transition = Transition(
            obs=self.obs,
            action=action,
            reward=torch.from_numpy(reward.astype(np.float32)),
            next_obs=_snapshot(self._arrays),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            episode_start=self._start,
            bonus=torch.from_numpy(np.zeros(n, np.float32)),  # the default, without a slow call
            info=self._positions([outcome[3] for outcome in outcomes]),
        )
        ended = terminated | truncated
        self._clock += n
        self._start = torch.from_numpy(ended)
        self.obs = transition.next_obs
        if np.maximum.reduce(self._length) > HISTORY:
            self._actions = [
                None if length > HISTORY else history
                for length, history in zip(self._length, self._actions, strict=True)
            ]
        if np.count_nonzero(ended):
            self._restart(np.flatnonzero(ended).tolist(), outcomes)
        return transition, self.obs

    def _positions(self, positions: list[NDArray[np.int64] | None]) -> dict[str, Tensor]:
        """The `info` of a transition: `position` [N, k] and `start_position`, if the env reports them."""
        if self._coordinates is None:
            lengths = {0 if position is None else len(position) for position in positions}
            self._coordinates = lengths.pop() if len(lengths) == 1 else 0
        if not self._coordinates:
            return {}
        unknown = np.full(self._coordinates, -1)
        rows = [unknown if p is None or len(p) != len(unknown) else p for p in positions]
        info = {"position": torch.from_numpy(np.stack(rows))}
        if self._start_position is not None:
            info["start_position"] = self._start_position
        return info

    def _restart(self, ended: list[int], outcomes: list[Outcome]) -> None:
        """Record the finished episodes, begin new ones."""
        for i in ended:
            # `ago` counts from the last `pop_episodes`; the next one adds the steps from then to now
            length, measures = int(self._length[i]), dict(outcomes[i][4])
            self._finished.append(Episode(i, length, float(self._return[i]), -self._clock, measures))
            self._episode[i] += 1
            self._actions[i] = []
        self._begin(ended)

    def _begin(self, envs: list[int]) -> None:
        """Reset these envs with the seeds of their episodes and replay the actions taken so far."""
        calls = []
        for group in self._groups:
            episodes = [
                (i, episode_seed(self.seed, i, self._episode[i]), self._actions[i])
                for i in envs
                if group.first <= i < group.first + group.count
            ]
            if episodes:
                group.send("begin", episodes)
                calls.append((group, episodes))
        for group, episodes in calls:
            for (i, _, actions), (start, earned) in zip(episodes, group.receive(), strict=True):
                self._starts[i], self._return[i], self._length[i] = start, earned, len(actions or ())
        same = len({None if start is None else len(start) for start in self._starts}) == 1
        known = same and self._starts[0] is not None
        self._start_position = torch.from_numpy(np.stack(self._starts)) if known else None
        self.obs = _snapshot(self._arrays)

    def pop_episodes(self) -> list[Episode]:
        """The episodes finished since the last call."""
        finished = [replace(episode, ago=self._clock + episode.ago) for episode in self._finished]
        self._finished, self._clock = [], 0
        return finished

    @property
    def starting(self) -> Tensor:
        """Which envs are at the first observation of an episode, [N] bool."""
        return self._start

    def render(self) -> list[Any]:
        """One frame per env; make the envs with render_mode="rgb_array"."""
        for group in self._groups:
            group.send("render")
        return [frame for group in self._groups for frame in group.receive()]

    def close(self) -> None:
        """Close the environments and end the worker processes; also called when `self` is garbage-collected."""
        self._close()

    def state_dict(self) -> dict[str, Any]:
        """For every env, the number of its episode and the actions taken in it."""
        return {
            "episode": list(self._episode),
            "actions": [h if h is None else torch.from_numpy(np.array(h)) for h in self._actions],
            "finished": [list(astuple(episode)) for episode in self._finished],
            "clock": self._clock,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Reset every env with its episode's seed and replay its actions."""
        if len(state["episode"]) != self.num_envs:
            raise UserError(f"the saved state has {len(state['episode'])} envs, this run has {self.num_envs}")
        # An episode whose actions were dropped cannot be replayed: its env continues with the next one.
        lost = [actions is None for actions in state["actions"]]
        if any(lost):
            warnings.warn(
                f"{sum(lost)} of {self.num_envs} episodes of {self.env_id} had passed {HISTORY:,} steps, so they "
                "cannot be replayed: a new episode begins in their place",
                stacklevel=2,
            )
        self._episode = [k + missing for k, missing in zip(state["episode"], lost, strict=True)]
        self._actions = [[] if actions is None else list(actions.numpy()) for actions in state["actions"]]
        self._return, self._length = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        self._finished = [Episode(*episode) for episode in state["finished"]]
        self._clock = state["clock"]
        self._begin(list(range(self.num_envs)))
        self._start = torch.from_numpy(self._length == 0)


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed of one episode; different episodes, envs and run seeds get different levels."""
    return derive_seed(seed, "episode", env, episode)


def _plain(space: spaces.Space[Any], env_id: str) -> spaces.Space[Any]:
    """The space as torch can hold it, without text."""
    match space:
        case spaces.Dict():
            kept = {k: _plain(s, env_id) for k, s in space.items() if not isinstance(s, spaces.Text)}
            if kept:
                return spaces.Dict(kept)
        case spaces.Box():
            dtype: Any = _TORCH_DTYPE.get(str(space.dtype), space.dtype)
            return spaces.Box(space.low.astype(dtype), space.high.astype(dtype), dtype=dtype)
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return space
    raise UserError(
        f"{env_id} has observations {space}; Box, Discrete, MultiDiscrete, MultiBinary, Dict are supported"
    )


_TORCH_DTYPE = {"float64": np.float32, "uint16": np.int32, "uint32": np.int64}


def _action_converter(space: spaces.Space[Any], env_id: str) -> Callable[[Tensor], Any]:
    """A function from action tensors [N, …] to a fresh array in the dtype that the env wants."""
    match space:
        case spaces.Discrete():
            start = int(space.start)  # our actions count from 0
            return lambda action: action.numpy(force=True).astype(np.int64) + start
        case spaces.Box() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return lambda action: action.numpy(force=True).astype(space.dtype)
    raise UserError(
        f"{env_id} has actions {space}; Discrete, Box, MultiDiscrete and MultiBinary are supported"
    )


def _snapshot(arrays: Any) -> Tree:
    """The observations of all envs, an array [N, …] or a dict of them, copied to tensors."""
    return tree_map(lambda array: torch.from_numpy(array.copy()), arrays)
