"""A custom explorer: a bonus for being far from where the agent has been recently.

β = distance of s' to the running mean of the observations, in units of their standard deviation

Installed with the entry point `distance = "own_explorer:Distance"` in the group `critex.explorers`, it is an explorer
like any other:  critex train sac --env Pendulum-v1 --explorer distance --bonus.decay 0.99
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from critex.data import Transition
from critex.explorers import ScaledExplorer, ScalingConfig, Setting
from critex.networks import Flatten


@dataclass(frozen=True)
class DistanceConfig(ScalingConfig):
    """Options: each is a flag, --bonus.NAME, and its docstring is the help text."""

    decay: float = 0.999
    """How slowly the running mean forgets."""


class Distance(ScaledExplorer):
    Config = DistanceConfig
    mean: Tensor
    var: Tensor

    def __init__(self, config: DistanceConfig, setting: Setting) -> None:
        super().__init__(config)
        self.config, self.flatten = config, Flatten(setting.observation_space)
        self.register_buffer(
            "mean", torch.zeros(self.flatten.dim)
        )  # buffers are saved and restored with the run
        self.register_buffer("var", torch.ones(self.flatten.dim))

    def raw(self, steps: Transition) -> Tensor:
        """The bonus before scaling: one number for each transition, [N] or [T, N]."""
        rows = self.flatten(steps.next_obs)
        bonus = ((rows - self.mean) / self.var.sqrt()).norm(dim=-1)
        for row in rows.reshape(-1, self.flatten.dim):
            self.mean.lerp_(row, 1 - self.config.decay)
            self.var.lerp_((row - self.mean).square().clamp_min(1e-6), 1 - self.config.decay)
        return bonus
