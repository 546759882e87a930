"""The agent protocol, and helpers that the off-policy loops share."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, Protocol

import gymnasium as gym
import torch
from gymnasium.vector.utils import create_empty_array
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.embedding import Embedding
from critex.envs import Envs
from critex.errors import UserError
from critex.explorers import Explorer
from critex.networks import Adam
from critex.ranges import Range

MakeCritic = Callable[[], nn.Module]
"""Factory of a custom critic, called once for each critic and each target network."""


class Agent(Protocol):
    """Acts and learns. `Agent(cfg, observation_space, action_space, device)` builds all of it, with its explorer.

    Its checkpoint has three parts: `agent.state_dict()`, `agent.optimizer` and `agent.explorer`.
    """

    cfg: Any
    device: torch.device
    embedding: Embedding
    """φ of the critic."""
    explorer: Explorer
    optimizer: Adam
    """Optimises the critic and the parameters that the explorer learns."""

    @property
    def act(self) -> Callable[..., Tensor]:
        """Exploratory actions, [N, …]; further arguments depend on the algorithm."""

    @property
    def update(self) -> Callable[..., dict[str, Any]]:
        """Learn from transitions; returns the losses to log."""

    def policy(self, obs: Tree) -> Tensor:
        """The greedy action for raw observations, [N, …], in the environment's format."""

    def see(self, obs: Tree) -> Tree:
        """Raw observations as the networks and the explorer see them."""

    def state_dict(self) -> dict[str, Any]:
        """The agent's state, without the critic's optimiser and the explorer."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""


UpdateRatio = Annotated[float, Range(1e-6, 1e6)]
"""Updates per environment step; `updates_due` counts in millionths."""


def updates_due(step: int, updates_per_step: float | Fraction) -> int:
    """⌊step · updates_per_step⌋ without rounding errors: 0.1 gives exactly one update every ten steps."""
    ratio = Fraction(updates_per_step).limit_denominator(1_000_000)
    return step * ratio.numerator // ratio.denominator


def fitting_minibatches(wanted: int, total: int) -> int:
    """The largest number of equal minibatches that `total` splits into, at most `wanted`."""
    return next(m for m in range(min(wanted, total, 100_000), 0, -1) if total % m == 0)


def require_buffer(cfg: Any, steps: int = 1) -> None:
    """Refuse a replay buffer that cannot hold the steps of all environments between two updates."""
    if cfg.buffer_size < steps * cfg.num_envs:
        raise UserError(
            f"a replay buffer of {cfg.buffer_size} transitions cannot hold the {steps} × {cfg.num_envs} steps between "
            f"two updates; use a buffer_size of at least {steps * cfg.num_envs}"
        )


def require_updates(cfg: Any, updates: int) -> None:
    """Refuse a run that would end before its first update."""
    if updates < 1 and cfg.learning_starts < cfg.steps:
        raise UserError(
            f"learning starts after {cfg.learning_starts:,} of {cfg.steps:,} steps, and updates are too rare for one to "
            "follow; update more often, or use more --steps"
        )
    if updates < 1:
        raise UserError(
            f"learning starts after {cfg.learning_starts:,} steps and the run has {cfg.steps:,}, so it would end without "
            f"one update; use --learning-starts {cfg.steps // 10} or more --steps"
        )


def require_same_spaces(envs: Envs, eval_env: str) -> None:
    """Refuse an environment for evaluations that does not exist, or that the agent could not act in."""
    other = Envs(eval_env, 1, seed=0)
    other.close()
    for name in ("observation_space", "action_space"):
        own, theirs = getattr(envs, name), getattr(other, name)
        if own != theirs:
            raise UserError(
                f"eval_env {eval_env} has the {name.replace('_', ' ')} {theirs}, training has {own}; give both ids the same "
                "options"
            )


def embedding_width(
    critic: nn.Module, observation_space: gym.Space[Any], action_space: gym.Space[Any], takes_action: bool
) -> int:
    """The length of φ, found by calling `critic.embed` once."""
    if not hasattr(critic, "embed"):
        arguments = "obs, action" if takes_action else "obs"
        raise UserError(
            f"{type(critic).__name__} has no method embed({arguments}); it must return φ, [..., d]"
        )
    device = next((p.device for p in critic.parameters()), torch.device("cpu"))
    inputs = [_example(observation_space, device)]
    if takes_action:
        inputs.append(_example(action_space, device))
    was_training = critic.training
    critic.eval()  # leaves the statistics of a BatchNorm alone
    with torch.no_grad():
        phi: Any = critic.embed(*inputs)  # type: ignore[operator]
    critic.train(was_training)
    return int(phi.shape[-1])


def _example(space: gym.Space[Any], device: torch.device) -> Any:
    """A batch of one observation or action of a space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: _example(child, device) for key, child in space.items()}
    empty = torch.as_tensor(create_empty_array(space, 1)).to(device)
    empty = empty.to(torch.get_default_dtype()) if empty.is_floating_point() else empty
    return empty + int(space.start) if isinstance(space, gym.spaces.Discrete) else empty
