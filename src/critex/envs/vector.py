"""N environments as one: true final observations, extrinsic returns, states that can be saved exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array
from numpy.typing import NDArray
from torch import Tensor

from critex.data import Transition, Tree, derive_seed
from critex.envs.families import make
from critex.errors import UserError


@dataclass(frozen=True)
class Episode:
    """A finished episode: which env it ran in, its length, the sum of its extrinsic rewards."""

    env: int
    length: int
    return_: float
    ago: int = 0
    """Steps that the envs have taken, all together, since the step that ended it."""


class Envs:
    """`num_envs` copies of a gymnasium environment, stepped one after the other.

        envs = Envs("Hopper-v4", num_envs=4, seed=1)
        transition, obs = envs.step(policy(envs.obs))

    `obs` (also `envs.obs`) is ready to act on: an environment that finished has been reset, while
    `transition.next_obs` holds what it showed at the end. Float64 observations become float32, images stay
    uint8, Discrete ones are int64 [N], Dict spaces give dicts without their text. Actions are tensors [N, …].

    Each episode has a seed of its own, a hash of (seed, env, episode), so a saved state is the episode's
    number and the actions taken in it: `load_state_dict` resets and replays them, bit for bit.

    The results are those of gymnasium's SyncVectorEnv with AutoresetMode.DISABLED and a `reset_mask`, at a
    fraction of its cost: of info only `position` is batched, with the `start_position` of the running episode where
    the env gives it at reset, and every observation is copied once.
    """

    def __init__(self, env_id: str, num_envs: int = 1, seed: int = 0, **env_kwargs: Any) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs must be at least 1, not {num_envs}")
        if seed < 0:
            raise UserError(f"seed must not be negative, and is {seed}")
        self.env_id, self.num_envs, self.seed = env_id, num_envs, seed
        self._envs = [make(env_id, **env_kwargs) for _ in range(num_envs)]
        self.observation_space = _plain(self._envs[0].observation_space, env_id)
        self.action_space = self._envs[0].action_space
        self._to_env = _action_converter(self.action_space, env_id)
        self.obs: Tree
        self._arrays: Any = create_empty_array(self.observation_space, num_envs)  # the memory behind `obs`
        self._start: Tensor  # [N] bool: the next step is the first of an episode
        self._episode: list[int]  # the number of the episode each env is in
        self._actions: list[list[Any]]  # taken in it so far
        self._return: NDArray[np.float64]  # earned in it so far
        self._finished: list[Episode]  # since the last `pop_episodes`
        self._clock: int  # steps since then
        self._starts: list[Any] = [None] * num_envs  # where it began, if the env tells
        self._start_position: Tensor | None  # the same as one tensor [N, k]
        self.load_state_dict(
            {"episode": [0] * num_envs, "actions": [torch.empty(0)] * num_envs, "finished": [], "clock": 0}
        )

    def step(self, action: Tensor) -> tuple[Transition, Tree]:
        """Take one action [N, …] in every env; the transition, and the observations to act on next."""
        n = self.num_envs
        if len(action) != n:
            raise ValueError(f"{len(action)} actions for {n} envs")
        reward, terminated, truncated = np.empty(n), np.empty(n, np.bool_), np.empty(n, np.bool_)
        arrays, positions = _copy(self._arrays), []
        for i, taken in enumerate(self._to_env(action)):
            obs, reward[i], terminated[i], truncated[i], info = self._envs[i].step(taken)
            _write(arrays, i, obs)
            self._actions[i].append(taken)
            if "position" in info:
                positions.append(np.atleast_1d(info["position"]))
        self._return += reward
        transition = Transition(
            obs=self.obs,
            action=action,
            reward=torch.from_numpy(reward.astype(np.float32)),
            next_obs=_tensors(arrays),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            episode_start=self._start,
        )
        if positions:
            transition.info["position"] = torch.from_numpy(np.stack(positions))
            if self._start_position is not None:
                transition.info["start_position"] = self._start_position
        ended = terminated | truncated
        self._clock += n
        self._start = torch.from_numpy(ended)
        self._arrays, self.obs = arrays, transition.next_obs
        if np.count_nonzero(ended):
            self._restart(ended)
        return transition, self.obs

    def _restart(self, ended: NDArray[np.bool_]) -> None:
        """Record the finished episodes, begin new ones."""
        self._arrays = _copy(self._arrays)
        for i in np.flatnonzero(ended).tolist():
            # `ago` counts from the last `pop_episodes`; the next one adds the steps from then to now
            self._finished.append(Episode(i, len(self._actions[i]), float(self._return[i]), -self._clock))
            self._episode[i] += 1
            self._begin(i)
        self._start_position = _stacked(self._starts)
        self.obs = _tensors(self._arrays)

    def _begin(self, i: int) -> None:
        self._actions[i], self._return[i] = [], 0.0
        obs, info = self._envs[i].reset(seed=episode_seed(self.seed, i, self._episode[i]))
        self._starts[i] = np.array(info["position"], ndmin=1) if "position" in info else None
        _write(self._arrays, i, obs)

    def pop_episodes(self) -> list[Episode]:
        """The episodes finished since the last call."""
        finished = [replace(episode, ago=self._clock + episode.ago) for episode in self._finished]
        self._finished, self._clock = [], 0
        return finished

    def render(self) -> list[Any]:
        """One frame per env; make the envs with render_mode="rgb_array"."""
        return [env.render() for env in self._envs]

    def close(self) -> None:
        """Release what the environments hold."""
        for env in self._envs:
            env.close()

    def state_dict(self) -> dict[str, Any]:
        """Where every env stands: its episode's number and the actions taken in it."""
        return {
            "episode": list(self._episode),
            "actions": [torch.from_numpy(np.array(history)) for history in self._actions],
            "finished": [list(astuple(episode)) for episode in self._finished],
            "clock": self._clock,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Reset every env with its episode's seed and replay its actions."""
        if len(state["episode"]) != self.num_envs:
            raise UserError(f"the saved state has {len(state['episode'])} envs, this run {self.num_envs}")
        self._episode = list(state["episode"])
        self._actions = [[] for _ in range(self.num_envs)]
        self._return = np.zeros(self.num_envs)
        self._finished = [Episode(*episode) for episode in state["finished"]]
        self._clock = state.get("clock", 0)  # checkpoints of earlier versions have none
        self._arrays = _copy(self._arrays)
        for i, (env, actions) in enumerate(zip(self._envs, state["actions"], strict=True)):
            self._begin(i)
            for action in actions.numpy():
                obs, reward, *_ = env.step(action)
                self._return[i] += float(reward)
                self._actions[i].append(action)
                _write(self._arrays, i, obs)
        self._start = torch.tensor([not history for history in self._actions])
        self._start_position = _stacked(self._starts)
        self.obs = _tensors(self._arrays)


def _stacked(rows: list[Any]) -> Tensor | None:
    """One tensor [N, k], if all of its rows are known."""
    return None if any(row is None for row in rows) else torch.from_numpy(np.stack(rows))


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed of one episode, so that episodes, envs and runs with other seeds get other levels."""
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


# Observations of all envs, before they become tensors: an array [N, …] or a dict of them.


def _copy(arrays: Any) -> Any:
    return {k: _copy(v) for k, v in arrays.items()} if isinstance(arrays, dict) else arrays.copy()


def _write(arrays: Any, i: int, obs: Any) -> None:
    """Row i, cast to the arrays' dtype; what `arrays` has no place for (text) is left out."""
    if isinstance(arrays, dict):
        for key, child in arrays.items():
            _write(child, i, obs[key])
    else:
        arrays[i] = obs


def _tensors(arrays: Any) -> Tree:
    """The same memory as tensors."""
    return (
        {k: _tensors(v) for k, v in arrays.items()} if isinstance(arrays, dict) else torch.from_numpy(arrays)
    )
