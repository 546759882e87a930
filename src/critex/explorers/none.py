"""No bonus: the algorithm on its own."""

from __future__ import annotations

import torch
from torch import Tensor

from critex.data import Transition
from critex.data.tree import Tree
from critex.explorers.base import Explorer, Setting


class NoExplorer(Explorer):
    """β = 0 everywhere."""

    compares_actions = True

    def __init__(self, config: object, setting: Setting) -> None:
        super().__init__()
        self._embedding = setting.embedding

    def bonus(self, step: Transition) -> Tensor:
        return step.bonus

    def bonus_rollout(self, rollout: Transition, phi: Tensor | None = None) -> Tensor:
        return rollout.bonus

    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        batch = action.shape if self._embedding.discrete else action.shape[:-1]
        zeros = torch.zeros(batch, device=action.device)
        return zeros, zeros

    def measure_actions(self, obs: Tree) -> tuple[Tensor, Tensor]:
        zeros = torch.zeros(self._embedding.action_dim)  # broadcasts over the batch
        return zeros, zeros
