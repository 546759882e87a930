"""The features φ: the embedding layers of the value network that the agent trains anyway.

A value network is Q(s,a) = θᵀφ(s,a). Critics that take the action as input give φ(s,a) directly; critics
that take only the state give φ(s), and the paper allows two proxies for φ(s,a): the embedding φ(s') of the next
state, or [φ(s); a], the embedding concatenated with the action. `block` is a third form, exact for a critic
with one linear head per action: φ(s) in the block of action a, zero elsewhere. Its A is block diagonal, so it
is kept as one memory per action, each over φ(s) alone. `state` is φ(s) whatever the action, as in E3B.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data.tree import Tree, tree_leaves
from critex.errors import UserError
from critex.networks.hidden import last_hidden
from critex.networks.modes import eval_mode, with_modes

Form = Literal["state_action", "state_and_action", "next_state", "block", "state"]
Project = Callable[[Tensor], Tensor]
Bounds = tuple[Tensor, Tensor]
"""Lowest and highest continuous actions, [action_dim] each."""


def read_actions(space: gym.Space[Any]) -> tuple[bool, int, Bounds | None]:
    """(whether actions are discrete, their number or else their length, the bounds of continuous ones)."""
    match space:
        case gym.spaces.Discrete():
            return True, int(space.n), None
        case gym.spaces.Box():
            low, high = (torch.from_numpy(bound.ravel()).float() for bound in (space.low, space.high))
            return False, prod(space.shape), (low, high)
    raise UserError(f"action space {space} is not supported; Discrete and Box are")


def identity(phi: Tensor) -> Tensor:
    """No projection, as in CAE."""
    return phi


@dataclass(frozen=True)
class Embedding:
    """φ of transitions, from a callable that computes the critic's last hidden layer.

    `critic` is a bound method such as `q.embed`, never the module itself, so an explorer with an embedding owns no
    parameters. It is called as `critic(obs, action)` if `takes_action`, else `critic(obs)`,
    and returns [..., critic_dim].
    """

    critic: Callable[..., Tensor]
    critic_dim: int
    """The length of φ; 0 if it is not known yet."""
    takes_action: bool
    discrete: bool
    """Actions are integers in [0, action_dim); otherwise vectors [..., action_dim]."""
    action_dim: int
    form: Form
    norm: float | None = None
    """Rescale every feature to this Euclidean norm (the state part to norm 1 before the action is appended)."""
    bounds: Bounds | None = field(default=None, compare=False, repr=False)
    """Of continuous actions, if known."""

    @classmethod
    def of(
        cls,
        critic: Callable[..., Tensor],
        critic_dim: int,
        action_space: gym.Space[Any],
        *,
        takes_action: bool,
    ) -> Embedding:
        """The embedding of a critic that acts in `action_space`, in the form the paper's runs use."""
        discrete, action_dim, bounds = read_actions(action_space)
        form: Form = "state_action" if takes_action else "state_and_action"
        return cls(critic, critic_dim, takes_action, discrete, action_dim, form, bounds=bounds)

    def action_bounds(self) -> Bounds:
        """The bounds, infinite if unknown."""
        infinite = torch.full((self.action_dim,), torch.inf)
        return self.bounds or (-infinite, infinite)

    def dim(self, width: int | None = None) -> int:
        """Length of the features; `width` is the length of CAE+'s projection of the critic's embedding, if any."""
        width = self.critic_dim if width is None else width
        return width + self.action_dim if self.form == "state_and_action" else width

    @property
    def _owner(self) -> nn.Module:
        """The module that `critic` is a method of; an empty one if it is a plain function."""
        critic = self.critic
        owner = critic.module if isinstance(critic, last_hidden) else getattr(critic, "__self__", None)
        return owner if isinstance(owner, nn.Module) else nn.Module()

    @property
    def weight(self) -> Tensor:
        """A weight of the critic, for its device and dtype; an empty tensor if `critic` is a plain function."""
        return next(self._owner.parameters(), torch.empty(0))

    @property
    def device(self) -> torch.device:
        """The critic's device, if `critic` is a method of a module; else the CPU."""
        return self.weight.device

    @cached_property
    def _with_modes(self) -> list[nn.Module]:
        return with_modes(self._owner)

    def phi(self, obs: Tree, *action: Tensor) -> Tensor:
        """φ of the critic without dropout and with the running statistics of its batch norms, which stay unchanged."""
        try:
            with eval_mode(self._with_modes):
                phi = self.critic(obs, *action)
        except RuntimeError as error:  # of shapes, torch's own message says enough
            if not re.search("type|not implemented", str(error)):
                raise
            dtypes = " and ".join(dict.fromkeys(str(x.dtype) for x in (*tree_leaves(obs), *action)))
            raise UserError(
                f"the critic does not take inputs of {dtypes} ({error}); convert them first, images perhaps with obs / 255.0"
            ) from error
        if self.critic_dim and phi.shape[-1:] != (self.critic_dim,):
            raise UserError(
                f"the critic's φ has shape {list(phi.shape)}, but its length was given as {self.critic_dim}; "
                "critex.last_hidden(critic) gives φ of a whole critic, and its length"
            )
        return phi

    @property
    def blocks(self) -> int:
        """Number of memories per env: one per action in the block form, else one."""
        return self.action_dim if self.form == "block" else 1

    def state(self, obs: Tree, action: Tensor) -> Tensor:
        """φ(s), or φ(s, 0) if the critic takes an action: [..., critic_dim]. The zero action has the shape of `action`."""
        return self.phi(obs, torch.zeros_like(action)) if self.takes_action else self.phi(obs)

    def __call__(
        self,
        obs: Tree,
        action: Tensor,
        next_obs: Tree | None = None,
        project: Project = identity,
        state: Tensor | None = None,
    ) -> Tensor:
        """φ(s,a) of transitions, [..., dim]; `project` is CAE+'s U, applied to the critic's embedding alone.

        `state` is φ(s) [..., critic_dim] of a critic that takes only the state, if it was already computed.
        """
        match self.form:
            case "state_action":
                return self._to_length(project(self.phi(obs, action)))
            case "next_state":
                if next_obs is None:
                    raise ValueError("the next-state embedding φ(s') needs next_obs")
                return self._to_length(project(self.state(next_obs, action)))
            case "block" | "state":
                return self._to_length(project(self.state(obs, action) if state is None else state))
            case "state_and_action":
                state = project(self.state(obs, action) if state is None else state)
                code = F.one_hot(action.long(), self.action_dim) if self.discrete else action
                return self._join(state, code.reshape(*state.shape[:-1], self.action_dim))

    def each_action(self, obs: Tree, project: Project = identity) -> Tensor:
        """φ(s,a) of every action a, [..., A, dim], for comparing actions; one forward pass of the critic."""
        if not self.discrete:
            raise ValueError("bonuses can be compared over all actions only in a discrete action space")
        if self.form == "next_state":
            raise ValueError(
                "φ(s') of an action that was not taken is unknown; use embedding=state_and_action or block"
            )
        if self.form == "state":
            raise ValueError("φ(s) is the same for every action; use embedding=state_and_action or block")
        if self.takes_action:
            raise ValueError("comparing actions needs a critic that takes only the state")
        state = project(self.phi(obs)).unsqueeze(-2)
        state = state.expand(*state.shape[:-2], self.action_dim, -1)
        if self.form == "block":
            return self._to_length(state)
        return self._join(
            state, torch.eye(self.action_dim, device=state.device).expand(*state.shape[:-1], -1)
        )

    def _join(self, state: Tensor, code: Tensor) -> Tensor:
        if self.norm is not None:
            state = F.normalize(state, dim=-1)
        return self._to_length(torch.cat([state, code.to(state.dtype)], dim=-1))

    def _to_length(self, phi: Tensor) -> Tensor:
        return phi if self.norm is None else self.norm * F.normalize(phi, dim=-1)
