"""RND (Burda et al., 2019): the bonus is the error of a network that learns to predict a fixed random one.

β = ‖p(s') − t(s')‖₂, t fixed and random;    L = mean of ‖p(s') − t(s')‖₂
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree
from critex.explorers._encoder import EncoderConfig, StateEncoder, frozen
from critex.explorers.base import Setting
from critex.explorers.scaling import ScaledExplorer


@dataclass(frozen=True)
class RNDConfig(EncoderConfig):
    """Options of RND."""

    linear: bool = True
    """End p and t in a linear layer. Without it they end in the encoder's last ReLU layer, as in the code of E3B's
    authors for MiniHack."""


class Novelty(nn.Module):
    """n(x) = ‖p(x) − t(x)‖₂, [...], of a predictor p and a frozen target t."""

    def __init__(self, predictor: nn.Module, target: nn.Module) -> None:
        super().__init__()
        self.predictor, self.target = predictor, frozen(target)

    def forward(self, x: Tree) -> Tensor:
        distance: Tensor = (self.predictor(x) - self.target(x)).norm(dim=-1)
        return distance


class RND(ScaledExplorer):
    """β = n(s'), L = mean of n(s'); p and t have the same shape, an encoder and usually a linear layer."""

    Config = RNDConfig

    def __init__(self, config: RNDConfig, setting: Setting) -> None:
        super().__init__(config)

        def network() -> nn.Module:
            encoder = StateEncoder(setting, config.width)
            return nn.Sequential(encoder, nn.Linear(config.width, config.width)) if config.linear else encoder

        self.novelty = Novelty(network(), network()).to(setting.embedding.device)

    def raw(self, steps: Transition) -> Tensor:
        n: Tensor = self.novelty(steps.next_obs)
        return n

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        return self.raw(batch).mean()

    @torch.no_grad()
    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        if next_obs is None:
            raise ValueError("the novelty of s' needs next_obs")
        return self._scale_only(self.novelty(next_obs))
