"""The inputs that a training loop gives to `critex.CAE`: critic, environments, arrays and episode ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from critex.data.tree import Tree, tree_leaves, tree_map
from critex.embedding import Bounds, Form, read_actions
from critex.errors import UserError
from critex.networks.hidden import last_hidden

Array = Any  # a NumPy array or a tensor, or a dict of them
Flags = NDArray[np.bool_]
Autoreset = Literal["next_step", "same_step"]


def embed_of(critic: nn.Module | Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function that returns φ: the module's own `embed`, the input of its last linear layer, or itself."""
    if not isinstance(critic, nn.Module):
        return critic
    own = getattr(critic, "embed", None)
    return own if callable(own) and not isinstance(own, nn.Module) else last_hidden(critic)


class Batches:
    """φ of observations [N, …], or [T, N, …] of a rollout, from an `embed` that takes [B, …]."""

    def __init__(self, embed: Callable[..., Tensor]) -> None:
        self.embed = embed
        self.row_axes: int | None = None  # of one observation, once one has been seen
        # Its module, where `Embedding` looks for the device.
        self.__self__ = embed.module if isinstance(embed, last_hidden) else getattr(embed, "__self__", None)

    def __call__(self, obs: Tree, *action: Tensor) -> Tensor:
        shape = tree_leaves(obs)[0].shape
        if self.row_axes is None or len(shape) != self.row_axes + 2:
            return self.embed(obs, *action)
        rows, *flat = (tree_map(lambda x: x.flatten(0, 1), x) for x in (obs, *action))
        phi: Tensor = self.embed(rows, *flat).unflatten(0, shape[:2])
        return phi


def form_of(embed: Callable[..., Any], given: Form | None = None) -> Form:
    """φ(s,a) if the critic has two positional arguments, else [φ(s); a]; or the one `given`, if the critic fits it."""
    target = embed.module.forward if isinstance(embed, last_hidden) else embed
    if getattr(target, "__func__", None) is nn.Module.forward:
        raise UserError(
            "the critic has no forward; pass the part of it that computes the value from observations, such as "
            "agent.critic, or a function that returns φ, as in lambda s: agent.trunk(s)"
        )
    signature = inspect.signature(target)
    if given is not None:
        takes = ("obs", "action") if given == "state_action" else ("obs",)
        try:
            signature.bind(*takes)
        except TypeError as error:
            raise UserError(
                f"embedding={given!r} calls the critic as critic({', '.join(takes)}), which does not fit it ({error}); leave "
                f"embedding= out, or give a function ({', '.join(takes)}) → φ"
            ) from None
        return given
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature.parameters.values()
    positional = [p for p in parameters if p.kind in kinds]
    required = [p for p in positional if p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) or (len(required) < 2 <= len(positional)):
        raise UserError(
            "cannot tell whether the critic takes the action; give embedding='state_action' if it does, else "
            "'state_and_action' or 'next_state'"
        )
    if len(required) > 2:
        raise UserError(
            f"the critic takes {len(required)} arguments; give a function (obs, action) → φ instead"
        )
    return "state_action" if len(positional) >= 2 else "state_and_action"


@dataclass(frozen=True)
class Loop:
    """What an explorer reads from the environments of a training loop."""

    num_envs: int
    autoreset: Autoreset
    action_space: gym.Space[Any]

    @classmethod
    def of(cls, envs: Any) -> Loop:
        """Read an environment or a vector environment."""
        if not hasattr(envs, "single_action_space"):  # gymnasium 0.29 has two classes of vector environments
            return cls(1, "next_step" if _autoresets(envs) else "same_step", envs.action_space)
        mode = envs.metadata.get("autoreset_mode")
        if mode is None:  # before gymnasium 1.1; the mode changed with 1.0
            mode = "same_step" if gym.__version__.startswith("0.") else "next_step"
        name = str(getattr(mode, "value", mode)).replace("Step", "_step").lower()
        autoreset: Autoreset = "next_step" if name == "next_step" else "same_step"
        return cls(envs.num_envs, autoreset, envs.single_action_space)


@dataclass(frozen=True)
class Actions:
    """What an explorer knows of the actions: the number of discrete ones, or the length of continuous ones."""

    num_actions: int | None = None
    action_dim: int | None = None
    bounds: Bounds | None = field(default=None, compare=False)
    start: int = 0
    """The lowest discrete action."""

    @classmethod
    def of(cls, space: gym.Space[Any]) -> Actions:
        """Read an action space."""
        if isinstance(space, gym.spaces.Discrete):
            return cls(int(space.n), start=int(space.start))
        if isinstance(space, gym.spaces.Box):
            _, size, bounds = read_actions(space)
            return cls(None, size, bounds)
        raise UserError(
            f"action space {space} is not supported; Discrete and Box are; for another, give action_dim= and pass the "
            "actions as vectors of that length, one-hot for example"
        )

    def checked(self, action: Tensor, axes: int, form: Form) -> Tensor:
        """Actions with `axes` leading axes as the embedding takes them; discrete ones become integers in [0, num_actions)."""
        if form == "state_action":
            return action
        if self.num_actions is None:
            if self.action_dim is not None and action.shape[axes:].numel() != self.action_dim:
                raise UserError(
                    f"actions must have {self.action_dim} numbers in each row, as envs= or action_dim= says; got "
                    f"{list(action.shape)}"
                )
            if self.action_dim is not None or action.is_floating_point() or form in ("next_state", "state"):
                return action
            raise UserError(
                f"integer actions with embedding={form!r} need num_actions=, the number of actions, or envs="
            )
        if action.ndim == axes + 1 and action.shape[-1] == 1:
            action = action.squeeze(-1)
        low, high, start = action.min().item(), action.max().item(), self.start
        if action.ndim != axes or low < start or high >= start + self.num_actions or high % 1 or low % 1:
            raise UserError(
                f"actions must be integers from {start} to {start + self.num_actions - 1}, one in each row; got values from "
                f"{low} to {high} in shape {list(action.shape)}; if they start elsewhere, give envs="
            )
        return action.long() - start


def _autoresets(env: Any) -> bool:
    """Whether a single environment has gymnasium's Autoreset wrapper (gymnasium 1.0 or later)."""
    while isinstance(env, gym.Wrapper):
        if type(env).__name__ == "Autoreset":
            return True
        env = env.env
    return False


class Episodes:
    """Finds the first step of each episode, and the steps in which an environment only resets.

    `ended` [N]: environments whose episode ended in the last call. `fresh` [N]: environments that have not taken a step
    of their episode yet.
    """

    def __init__(self, autoreset: Autoreset) -> None:
        self.autoreset = autoreset
        self.ended: Flags | None = None
        self.fresh: Flags | None = None

    def step(self, n: int, ended: Array | None, episode_start: Array | None) -> tuple[Flags, Flags]:
        """([N] whether this is the first step of an episode, [N] whether it is a step and not only a reset)."""
        real, begins = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
        if ended is not None and episode_start is not None:
            raise UserError("give ended= or episode_start=, not both")
        if ended is None and self.autoreset == "next_step":
            raise UserError(
                "autoreset='next_step' needs ended=, terminated | truncated of the step, [N]: the step after an end only "
                "resets; if yours do not, give autoreset='same_step'"
            )
        if ended is not None:
            now = to_flags("ended", ended, (n,))
            if self.autoreset == "next_step" and self.ended is not None:
                real = ~self.ended
            begins = real if self.fresh is None else self.fresh & real
            self.ended = now & real
            self.fresh = ~real if self.autoreset == "next_step" else self.ended
        elif episode_start is not None:
            begins = to_flags("episode_start", episode_start, (n,))
        return begins, real

    def state(self) -> list[list[bool] | None]:
        return [None if x is None else x.tolist() for x in (self.ended, self.fresh)]

    def load(self, state: list[list[bool] | None]) -> None:
        self.ended, self.fresh = (None if x is None else np.array(x, bool) for x in state)


def to_flags(name: str, value: Array, shape: tuple[int, ...]) -> Flags:
    """Booleans, one for each action."""
    flags = value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)
    if flags.shape != shape:
        raise UserError(f"{name} must have the shape of actions, {list(shape)}; got {list(flags.shape)}")
    return flags.astype(bool)


def to_tensor(x: Any, weight: Tensor) -> Tensor:
    """An array on the critic's device; NumPy's floats get the critic's dtype."""
    if isinstance(x, Tensor):
        return x.to(weight.device)
    if isinstance(x, tuple) or hasattr(x, "keys"):
        raise UserError(
            f"observations and actions must be arrays, tensors or dicts of them; got {type(x).__name__}"
        )
    tensor = torch.as_tensor(np.asarray(x))
    return tensor.to(weight.device, weight.dtype if tensor.is_floating_point() else None)


def to_tensors(x: Any, weight: Tensor) -> Tree:
    """An observation, or a dict of them, as `to_tensor` converts them."""
    return tree_map(lambda leaf: to_tensor(leaf, weight), x)
