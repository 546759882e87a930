"""ICM (Pathak et al., 2017): the bonus is the prediction error of a learned forward model.

β = ‖F(φ(s), a) − φ(s')‖₂;    L = forward_coef·‖F(φ(s), a) − φ(s')‖₂ − inverse_coef·log p(a | φ(s), φ(s'))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree
from critex.explorers._encoder import EncoderConfig, StateEncoder
from critex.explorers._inverse import InverseConfig, InverseDynamics, following, paired
from critex.explorers.base import Setting
from critex.explorers.scaling import ScaledExplorer
from critex.networks import mlp
from critex.ranges import Count, NonNegative


@dataclass(frozen=True)
class ICMConfig(InverseConfig, EncoderConfig):
    """Options of ICM."""

    error: Literal["norm", "mse"] = "norm"
    """Error of the forward model: the length of F(φ(s), a) − φ(s'), or its mean square, as in the code of E3B's authors
    for Habitat."""
    hidden: Count = 256
    """Hidden width of the inverse-dynamics network."""
    forward_coef: NonNegative = 1.0
    """Weight of the forward model in the loss."""
    inverse_coef: NonNegative = 0.1
    """Weight of the inverse dynamics in the loss."""


class ICM(ScaledExplorer):
    """Owns the encoder φ, the forward model F and the inverse dynamics. The loss differentiates through φ(s') as well."""

    Config = ICMConfig

    def __init__(self, config: ICMConfig, setting: Setting) -> None:
        super().__init__(config)
        self.config = config
        self.encoder = StateEncoder(setting, config.width)
        self.pair = self.encoder.embedding(setting, "state_and_action")  # [φ(s); a]
        width, device = config.width, self.pair.device
        self.forward_model = nn.Sequential(mlp([self.pair.dim(), width]), nn.Linear(width, width)).to(device)
        self.inverse = InverseDynamics(width, self.pair, config.hidden, config)

    def error(self, here: Tensor, action: Tensor, there: Tensor) -> Tensor:
        """‖F(φ(s), a) − φ(s')‖₂ of embeddings [..., width], or its square over the width, [...]."""
        error: Tensor = self.forward_model(self.pair({}, action, state=here)) - there
        return error.norm(dim=-1) if self.config.error == "norm" else error.square().mean(-1)

    def raw(self, steps: Transition) -> Tensor:
        return self.error(self.encoder(steps.obs), steps.action, self.encoder(following(steps)))

    def _bonus_rollout(self, rollout: Transition, phi: Tensor | None) -> tuple[Tensor, Tensor]:
        return super()._bonus_rollout(self.prepare(rollout), phi)

    def prepare(self, rollout: Transition) -> Transition:
        return paired(rollout, self.config)

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        here, there = self.encoder(batch.obs), self.encoder(following(batch))
        forward = self.error(here, batch.action, there).mean()
        inverse: Tensor = self.inverse(here, there, batch.action).mean()
        return self.config.forward_coef * forward + self.config.inverse_coef * inverse

    @torch.no_grad()
    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        if next_obs is None:
            raise ValueError("the prediction error needs next_obs")
        return self._scale_only(self.error(self.encoder(obs), action, self.encoder(next_obs)))
