"""The steps that Stable-Baselines3 has stored, as transitions of critex."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from torch import Tensor

from critex.data import Transition
from critex.data.transition import pairs
from critex.data.tree import tree_map
from critex.errors import UserError
from critex.plugins._common import to_tensors

Flags = NDArray[np.bool_]


def newest_steps(buffer: Any, steps: int, normalizer: Any) -> tuple[Any, Any, Flags, Any]:
    """(s, a, dones, rows) of the newest steps of a replay buffer, [T, N] in time order; s as the critic sees it."""
    rows = np.arange(buffer.pos - steps, buffer.pos)  # negative where the buffer has wrapped around
    if steps > buffer.buffer_size:
        raise UserError(
            f"SB3 collected {steps} steps of each environment before it trained, more than the replay buffer's "
            f"{buffer.buffer_size}; use a larger buffer_size or a smaller train_freq"
        )
    obs: Any = tree_map(itemgetter(rows), buffer.observations)
    if normalizer is not None:  # SB3 stores the original observations
        obs = normalizer.normalize_obs(obs)
    return obs, buffer.actions[rows], buffer.dones[rows] > 0, rows


def transitions(
    obs: Any,
    action: Any,
    last_obs: Any,
    starts: Flags,
    ends: list[tuple[int, int, dict[str, Any]]],
    model: Any,
) -> Transition:
    """Steps [T, N] with s' the true final observation where an episode ended.

    `last_obs` [N, …] follows the last step. `ends` lists (t, env, info) of every step that ended an episode.
    """
    space, shape = model.observation_space, starts.shape
    states = _shaped(obs, space, shape)
    last = _shaped(last_obs, space, (1, *shape[1:]))
    next_obs: Any = tree_map(lambda x, after: np.concatenate([x[1:], after]), states, last)
    terminated, truncated = np.zeros((2, *shape), dtype=np.bool_)
    for t, i, info in ends:
        (truncated if info.get("TimeLimit.truncated", False) else terminated)[t, i] = True
        _write(next_obs, (t, i), _final(info))
    steps = Transition(
        obs=to_tensors(states),
        action=_actions(action, model.action_space, shape),
        reward=torch.zeros(shape),
        next_obs=to_tensors(next_obs),
        terminated=torch.from_numpy(terminated),
        truncated=torch.from_numpy(truncated),
        episode_start=torch.from_numpy(starts),
    )
    return steps if model.device.type == "cpu" else steps.to(model.device)


def discounted(bonus: NDArray[np.float64], starts: Flags, decay: float) -> NDArray[np.float64]:
    """Σₖ decayᵏ bonus[t+k] to the end of the episode, or of the steps, [T, N]: the bonus's share of GAE, with decay = γλ.

    The value V(s_T) behind the last step is SB3's, so it has no share.
    """
    sums = bonus.copy()
    for t in reversed(range(len(sums) - 1)):
        sums[t] += decay * ~starts[t + 1] * sums[t + 1]
    return sums


def replayed_pairs(model: Any, generator: torch.Generator) -> Transition:
    """A batch (s, a, s') of the replay buffer; with n-step returns, s' is still the next state."""
    buffer, normalizer = model.replay_buffer, model.get_vec_normalize_env()
    if isinstance(buffer, NStepReplayBuffer):
        upper = buffer.buffer_size if buffer.full else buffer.pos
        rows = torch.randint(upper, (model.batch_size,), generator=generator).numpy()
        sample: Any = ReplayBuffer._get_samples(buffer, rows, normalizer)
    else:
        sample = buffer.sample(model.batch_size, env=normalizer)
    action = sample.actions
    if isinstance(model.action_space, gym.spaces.Discrete):
        action = action.flatten()
    obs, next_obs = (
        _shaped(tree, model.observation_space, (len(action),))
        for tree in (sample.observations, sample.next_observations)
    )
    return pairs(obs, action, next_obs)


def _final(info: dict[str, Any]) -> Any:
    if "terminal_observation" not in info:
        raise UserError(
            "an episode ended, and its info has no 'terminal_observation', which every VecEnv of SB3 gives; the "
            "observation that follows belongs to the next episode"
        )
    return info["terminal_observation"]


def _shaped(obs: Any, space: gym.Space[Any], shape: tuple[int, ...]) -> Any:
    """Observations of SB3, which stores an integer as [1], as [*shape, …] with the dimensions of the space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: _shaped(obs[key], child, shape) for key, child in space.items()}
    array = obs if isinstance(obs, Tensor) else np.asarray(obs)
    return array.reshape(*shape, *(space.shape or ()))


def _write(arrays: Any, index: tuple[int, int], obs: Any) -> None:
    if isinstance(arrays, dict):
        for key, array in arrays.items():
            _write(array, index, obs[key])
    else:
        arrays[index] = np.asarray(obs).reshape(arrays[index].shape)


def _actions(actions: Any, space: gym.Space[Any], shape: tuple[int, ...]) -> Tensor:
    """Integers [...], or vectors [..., a]."""
    tensor = to_tensors(actions)
    assert isinstance(tensor, Tensor)
    discrete = isinstance(space, gym.spaces.Discrete)
    return tensor.long().reshape(shape) if discrete else tensor.reshape(*shape, -1)
