"""ACB (Ash et al., 2022): linear predictors of pure noise agree only when there is much data.

β = max_j |w_jᵀφ|, each w_j trained on the critic's φ towards fresh targets ~ N(0, 1)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree
from critex.errors import UserError
from critex.explorers.base import Setting
from critex.explorers.scaling import ScaledExplorer, ScalingConfig
from critex.ranges import Count


@dataclass(frozen=True)
class ACBConfig(ScalingConfig):
    """Options of ACB."""

    scaling: Literal["welford", "batch", "none"] = "welford"
    """How to scale the bonus: divide it by its running standard deviation at collection (welford), by batch moments
    in the learner (batch; only for algorithms that learn from rollouts), or leave it unscaled (none)."""
    ensemble: Count = 128
    """Number of noise predictors."""


class ACB(ScaledExplorer):
    """The largest of the predictions; the loss is the mean squared error against fresh noise, with φ held constant."""

    Config = ACBConfig

    def __init__(self, config: ACBConfig, setting: Setting) -> None:
        super().__init__(config)
        if setting.embedding.form == "next_state":
            raise UserError("acb needs features of (s, a); use another embedding")
        self.embedding = replace(setting.embedding)
        self.compares_actions = not self.embedding.takes_action
        self.heads = nn.Linear(self.embedding.dim(), config.ensemble, bias=False).to(self.embedding.device)
        nn.init.normal_(self.heads.weight)  # a prior of N(0, I), as in ridge regression with λ = 1
        self._generator = torch.Generator().manual_seed(setting.own_seed())

    def _largest(self, phi: Tensor) -> Tensor:
        largest: Tensor = self.heads(phi).abs().amax(-1)
        return largest

    def raw(self, steps: Transition) -> Tensor:
        return self._largest(self.embedding(steps.obs, steps.action, steps.next_obs))

    @torch.no_grad()
    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        return self._scale_only(self._largest(self.embedding(obs, action, next_obs)))

    @torch.no_grad()
    def measure_actions(self, obs: Tree) -> tuple[Tensor, Tensor]:
        return self._scale_only(self._largest(self.embedding.each_action(obs)))

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            state = (
                None if phi is None else phi[: len(batch)]
            )  # of an unroll without the row after its last step
            features = self.embedding(batch.obs, batch.action, batch.next_obs, state=state)
        predicted = self.heads(features.detach())
        noise = torch.randn(predicted.shape, generator=self._generator).to(predicted)
        out: Tensor = (predicted - noise).square().mean()
        return out

    def get_extra_state(self) -> dict[str, Any]:
        return super().get_extra_state() | {"generator": self._generator.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self._generator.set_state(state["generator"])
