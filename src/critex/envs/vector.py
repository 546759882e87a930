"""N environments as one: true final observations, extrinsic returns, states that can be saved exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray
from torch import Tensor

from critex.data import Transition, Tree, tree_map
from critex.envs.families import make
from critex.errors import UserError


@dataclass(frozen=True)
class Episode:
    """A finished episode: which env it ran in, its length, the sum of its extrinsic rewards."""

    env: int
    length: int
    return_: float


class Envs:
    """`num_envs` copies of a gymnasium environment, stepped together.

        envs = Envs("Hopper-v4", num_envs=4, seed=1)
        transition, obs = envs.step(policy(envs.obs))

    `obs` (also `envs.obs`) is ready to act on: an environment that finished has been reset, while
    `transition.next_obs` holds what it showed at the end. Float64 observations become float32, images stay
    uint8, Discrete ones are int64 [N], Dict spaces give dicts without their text. Actions are tensors [N, …].

    Each episode has a seed of its own, a hash of (seed, env, episode), so a saved state is the
    episode's number and the actions taken in it: `load_state_dict` resets and replays them, bit for bit.
    """

    def __init__(self, env_id: str, num_envs: int = 1, seed: int = 0, **env_kwargs: Any) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs must be at least 1, not {num_envs}")
        if seed < 0:
            raise UserError(f"seed must not be negative, and is {seed}")
        self.env_id, self.num_envs, self.seed = env_id, num_envs, seed
        self._vector: Any = SyncVectorEnv(
            [lambda: _Plain(make(env_id, **env_kwargs), env_id)] * num_envs,
            copy=False,
            autoreset_mode=AutoresetMode.DISABLED,
        )
        self.observation_space: spaces.Space[Any] = self._vector.single_observation_space
        self.action_space: spaces.Space[Any] = self._vector.single_action_space
        self._to_env = _action_converter(self.action_space, env_id)
        self._episode = [0] * num_envs  # the number of the episode each env is in
        self._actions: list[list[Any]] = [[] for _ in range(num_envs)]  # taken in it so far
        self._return = np.zeros(num_envs)
        self._finished: list[Episode] = []
        self._start = torch.ones(num_envs, dtype=torch.bool)
        self.obs: Tree = _tensors(self._vector.reset(seed=self._seeds())[0])

    def step(self, action: Tensor) -> tuple[Transition, Tree]:
        """Take one action [N, …] in every env; the transition, and the observations to act on next."""
        actions = self._to_env(action)
        obs, reward, terminated, truncated, info = self._vector.step(actions)
        for history, taken in zip(self._actions, actions, strict=True):
            history.append(taken)
        self._return += reward
        transition = Transition(
            obs=self.obs,
            action=action,
            reward=torch.from_numpy(reward.astype(np.float32)),
            next_obs=_tensors(obs),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            episode_start=self._start,
        )
        if "position" in info:
            transition.info["position"] = torch.from_numpy(info["position"])
        ended = terminated | truncated
        self._start = torch.from_numpy(ended)
        self.obs = self._restart(ended) if np.count_nonzero(ended) else transition.next_obs
        return transition, self.obs

    def pop_episodes(self) -> list[Episode]:
        """The episodes finished since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def render(self) -> tuple[Any, ...] | None:
        """One frame per env; make the envs with render_mode="rgb_array"."""
        frames: tuple[Any, ...] | None = self._vector.render()
        return frames

    def close(self) -> None:
        """Release what the environments hold."""
        self._vector.close()

    def state_dict(self) -> dict[str, Any]:
        """Where every env stands: its episode's number and the actions taken in it."""
        return {
            "episode": list(self._episode),
            "actions": [torch.from_numpy(np.array(history)) for history in self._actions],
            "finished": [list(astuple(episode)) for episode in self._finished],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Reset every env with its episode's seed and replay its actions."""
        if len(state["episode"]) != self.num_envs:
            raise UserError(f"the saved state has {len(state['episode'])} envs, this run {self.num_envs}")
        self._episode = list(state["episode"])
        self._finished = [Episode(*episode) for episode in state["finished"]]
        self._actions = [list(actions.numpy()) for actions in state["actions"]]
        self._start = torch.tensor([not history for history in self._actions])
        self._return[:] = 0.0
        self.obs = _tensors(self._vector.reset(seed=self._seeds())[0])
        for i, (env, history) in enumerate(zip(self._vector.envs, self._actions, strict=True)):
            for action in history:
                last, reward, *_ = env.step(action)
                self._return[i] += reward
            if history:
                row = _tensors(concatenate(self.observation_space, [last], self._empty_row()))
                tree_map(lambda obs, new, i=i: obs[i].copy_(new[0]), self.obs, row)

    def _empty_row(self) -> Any:
        return create_empty_array(self.observation_space, n=1)

    def _restart(self, ended: NDArray[np.bool_]) -> Tree:
        """Record the finished episodes and reset their envs; the observations of all."""
        for i in np.flatnonzero(ended):
            self._finished.append(Episode(int(i), len(self._actions[i]), float(self._return[i])))
            self._episode[i] += 1
            self._actions[i] = []
        self._return[ended] = 0.0
        return _tensors(self._vector.reset(seed=self._seeds(ended), options={"reset_mask": ended})[0])

    def _seeds(self, wanted: NDArray[np.bool_] | None = None) -> list[int | None]:
        return [
            episode_seed(self.seed, i, k) if wanted is None or wanted[i] else None
            for i, k in enumerate(self._episode)
        ]


def episode_seed(seed: int, env: int, episode: int) -> int:
    """A 63-bit hash of its arguments: no two episodes, envs or run seeds share a level."""
    sequence = np.random.SeedSequence(seed, spawn_key=(env, episode))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


class _Plain(gym.Wrapper[Any, Any, Any, Any]):
    """States the observation space that torch can hold, and keeps of info what we use.

    Observations pass untouched: the vector env copies them into arrays of this space, which casts float64 to
    float32 and leaves out the entries that the space does not name. Batching all of info would cost more
    than some environments' steps.
    """

    def __init__(self, env: gym.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        self.observation_space = _plain(env.observation_space, env_id)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        kept = {"position": np.atleast_1d(info["position"])} if "position" in info else {}
        return obs, reward, terminated, truncated, kept


def _plain(space: spaces.Space[Any], env_id: str) -> spaces.Space[Any]:
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


def _tensors(obs: Any) -> Tree:
    """A copy as tensors: the vector env will write its next observations over `obs`."""
    if isinstance(obs, dict):
        return {key: _tensors(value) for key, value in obs.items()}
    return torch.from_numpy(obs.copy())
