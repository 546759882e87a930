"""Groups of environments: in this process, or split over worker processes with shared memory."""

from __future__ import annotations

import contextlib
import math
import multiprocessing as mp
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from critex.envs.families import make
from critex.errors import UserError

PATIENCE = 2.0
"""Seconds that a worker waits for a command before it checks that its parent is still alive."""

RESERVED = {"kind", "step", "time", "env", "return", "length", "returns", "lengths", "unfinished"}
"""Names in a run's metrics that the measures of an environment cannot have."""

Outcome = tuple[float, bool, bool, NDArray[np.int64] | None, dict[str, float]]
"""reward, terminated, truncated, position, and the measures of the episode that the step ended."""


class Group(Protocol):
    """Environments `first` … `first` + `count` − 1 of a vector. Each call is `send`, then `receive`."""

    first: int
    count: int

    def send(self, command: str, *args: Any) -> None:
        """Begin `Local.<command>(*args)`."""

    def receive(self) -> Any:
        """The answer to the call that was sent."""

    def close(self) -> None:
        """Close the environments."""


class Local:
    """Environments of this process. They write their observations into their rows of `arrays`."""

    def __init__(self, envs: list[gym.Env[Any, Any]], first: int, arrays: Any) -> None:
        self.envs, self.first, self.count, self.arrays = envs, first, len(envs), arrays
        self._answer: Any = None

    def send(self, command: str, *args: Any) -> None:
        self._answer = getattr(self, command)(*args)

    def receive(self) -> Any:
        return self._answer

    def step(self, actions: Any) -> list[Outcome]:
        """One action for each environment, [count, …]."""
        outcomes = []
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True), self.first):
            obs, reward, terminated, truncated, info = env.step(action)
            write(self.arrays, i, obs)
            ended = terminated or truncated
            measures = measures_of(info) if ended else {}
            outcomes.append((float(reward), bool(terminated), bool(truncated), position_of(info), measures))
        return outcomes

    def begin(self, episodes: list[tuple[int, int, Any]]) -> list[tuple[NDArray[np.int64] | None, float]]:
        """Start the episode of each (env, seed, actions) and replay its actions: (start position, return so far)."""
        began = []
        for i, seed, actions in episodes:
            env, total = self.envs[i - self.first], 0.0
            obs, info = env.reset(seed=seed)
            for action in actions:
                obs, reward, *_ = env.step(action)
                total += float(reward)
            write(self.arrays, i, obs)
            began.append((position_of(info), total))
        return began

    def render(self) -> list[Any]:
        """One frame per environment."""
        return [env.render() for env in self.envs]

    def close(self) -> None:
        while self.envs:
            self.envs.pop().close()


class Worker:
    """Environments in a separate process. Observations go through shared memory, the rest through a pipe."""

    def __init__(
        self, env_id: str, kwargs: dict[str, Any], first: int, count: int, memory: SharedArrays
    ) -> None:
        self.env_id, self.first, self.count = env_id, first, count
        # Forked workers know the environments that the parent registered; other systems have no safe fork.
        context: Any = mp.get_context("fork" if sys.platform == "linux" else "spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(far, env_id, kwargs, first, count, memory, os.getpid()), daemon=True
        )
        self._process.start()
        far.close()

    def send(self, command: str, *args: Any) -> None:
        try:
            self._pipe.send((command, *args))
        except OSError:
            raise self._died() from None

    def receive(self) -> Any:
        try:
            failed, answer = self._pipe.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if failed:
            raise answer
        return answer

    def _died(self) -> UserError:
        self._process.join(1)
        last = self.first + self.count - 1
        which = f"env {last}" if self.count == 1 else f"envs {self.first}–{last}"
        return UserError(
            f"the process that runs {which} of {self.env_id} died (exit code {self._process.exitcode}): resume the "
            "run from its last checkpoint, with fewer env_workers if memory ran out"
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(("close",))
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(
    pipe: Connection,
    env_id: str,
    kwargs: dict[str, Any],
    first: int,
    count: int,
    memory: SharedArrays,
    parent: int,
) -> None:
    """A worker's loop: answer commands until told to close, or until the parent is gone."""
    # Ctrl-C reaches the whole group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # not the parent's handler; environments are closed
    group = Local([], first, memory.arrays())
    try:
        while True:
            while not pipe.poll(PATIENCE):
                if os.getppid() != parent:
                    return
            command, *args = pipe.recv()
            if command == "close":
                return
            try:
                if not group.envs:
                    group.envs = [make(env_id, **kwargs) for _ in range(count)]
                pipe.send((False, getattr(group, command)(*args)))
            except Exception as error:  # noqa: BLE001  # whatever an environment raises is raised by the parent
                pipe.send((True, _portable(error)))
    except (EOFError, OSError):
        pass  # the parent is gone
    finally:
        group.close()


def _portable(error: Exception) -> Exception:
    """The error with its traceback, which pickling would drop, as a note; a RuntimeError if it cannot be pickled."""
    trace = "".join(traceback.format_exception(error))
    error.add_note(f"\nin the process of the environment:\n{trace}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  # anything may go wrong in a foreign __reduce__
        return RuntimeError(trace)
    return error


def close_all(groups: Iterable[Group], owner: int) -> None:
    """Close every group, in the process that made them: a forked worker holds copies of its parent's objects."""
    if os.getpid() == owner:
        for group in groups:
            group.close()


class SharedArrays:
    """Observations of N environments, an array [N, …] or a dict of them, in memory that processes share."""

    def __init__(self, space: spaces.Space[Any], num_envs: int) -> None:
        self.memory: Any
        if isinstance(space, spaces.Dict):
            self.memory = {key: SharedArrays(child, num_envs) for key, child in space.items()}
        else:
            self.shape, self.dtype = (num_envs, *(space.shape or ())), np.dtype(space.dtype)
            self.memory = mp.RawArray("b", max(math.prod(self.shape) * self.dtype.itemsize, 1))

    def arrays(self) -> Any:
        """Views of the memory."""
        if isinstance(self.memory, dict):
            return {key: child.arrays() for key, child in self.memory.items()}
        count = math.prod(self.shape)
        return np.frombuffer(self.memory, self.dtype, count).reshape(self.shape)


def write(arrays: Any, i: int, obs: Any) -> None:
    """Write row i, cast to the arrays' dtype; entries that `arrays` lacks (text) are left out."""
    if isinstance(arrays, dict):
        for key, child in arrays.items():
            if key not in obs:
                raise UserError(
                    f"an observation has no {key!r}, which its observation_space has; correct the environment"
                )
            write(child, i, obs[key])
    elif np.shape(obs) != arrays.shape[1:]:  # NumPy would repeat a single number without a word
        raise UserError(
            f"an observation has shape {np.shape(obs)}, its observation_space {arrays.shape[1:]}; correct the environment"
        )
    else:
        arrays[i] = obs


def measures_of(info: dict[str, Any]) -> dict[str, float]:
    """`info["measures"]` of the last step of an episode: numbers by name."""
    try:
        measures = {str(name): float(x) for name, x in dict(info.get("measures", {})).items()}
    except (TypeError, ValueError):
        raise UserError(f'info["measures"] must be a dict of numbers, not {info["measures"]!r}') from None
    if taken := RESERVED & measures.keys():
        raise UserError(
            f'info["measures"] has {min(taken)!r}, which critex writes itself; give it another name'
        )
    return measures


def position_of(info: dict[str, Any]) -> NDArray[np.int64] | None:
    """`info["position"]` as a vector of integers [k]; None if it is missing or means something else."""
    if "position" not in info:
        return None
    try:
        position = np.atleast_1d(np.asarray(info["position"]))
    except (ValueError, TypeError):
        return None
    if position.ndim != 1 or not position.size or not np.issubdtype(position.dtype, np.integer):
        return None
    return position.astype(np.int64)
