"""One vector step of experience, the record that all parts of the library exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from critex.data.tree import Tree, tree_leaves, tree_map


@dataclass(slots=True)
class Transition:
    """(s, a, r, s') of N environments; every tensor is [N, …], or [B, …] and [T, N, …] once batched.

    `next_obs` is the true next observation, even if the episode ended and the environment was then reset.
    `reward` is extrinsic; the bonus is kept separately and added by the algorithm, r̃ = r + αβ, so that neither
    is ever lost.
    """

    obs: Tree
    action: Tensor
    reward: Tensor  # float32
    next_obs: Tree
    terminated: Tensor  # bool: s' is terminal, its value is 0
    truncated: Tensor  # bool: a time limit ended the episode, s' still has a value
    episode_start: Tensor  # bool: s is the first observation of its episode
    bonus: Tensor = None  # type: ignore[assignment]  # float32, zero until an explorer sets it
    info: dict[str, Any] = field(default_factory=dict)  # `position` [N, k] of s', `start_position`, …

    def __post_init__(self) -> None:
        if self.bonus is None:
            self.bonus = torch.zeros_like(self.reward)

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def ended(self) -> Tensor:
        """terminated ∨ truncated: the next step belongs to another episode."""
        return self.terminated | self.truncated

    def asdict(self) -> dict[str, Any]:
        """The fields as one tree, not copied: `Transition(**t.asdict())` equals `t`."""
        return {
            "obs": self.obs,
            "action": self.action,
            "reward": self.reward,
            "next_obs": self.next_obs,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "episode_start": self.episode_start,
            "bonus": self.bonus,
            "info": self.info,
        }

    def map(self, fn: Callable[..., Tensor], *rest: Transition) -> Transition:
        """A transition of fn(leaf), or of fn(leaf, …) over the matching leaves of several."""
        tree: Any = tree_map(fn, self.asdict(), *(r.asdict() for r in rest))
        return Transition(**tree)

    def leaves(self) -> list[Tensor]:
        """Every tensor in it, in a fixed order."""
        return tree_leaves(self.asdict())

    def to(self, device: torch.device | str) -> Transition:
        """This transition on another device; itself if it is there already."""
        if self.reward.device == torch.device(device):
            return self
        return self.map(lambda x: x.to(device, non_blocking=True))


Batch: TypeAlias = Transition


def pairs(obs: Tree, action: Tensor, next_obs: Tree) -> Transition:
    """Transitions [B] with only (s, a, s'), for an explorer's loss."""
    no = torch.zeros(action.shape[:1], dtype=torch.bool, device=action.device)
    return Transition(obs, action, no.float(), next_obs, no, no, no)
