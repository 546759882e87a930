"""ACB (Ash et al., 2022): linear predictors of pure noise agree only when there is much data.

β = max_j |w_jᵀφ|, each w_j trained on the critic's φ towards fresh targets ~ N(0, 1)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree
from critex.embedding import Form
from critex.errors import UserError
from critex.explorers.base import Setting
from critex.explorers.scaling import ScaledExplorer, Scaling, ScalingConfig
from critex.ranges import Count, Positive


@dataclass(frozen=True)
class ACBConfig(ScalingConfig):
    """Options of ACB."""

    scaling: Scaling = "welford"
    ensemble: Count = 128
    """Number of noise predictors."""
    embedding: Literal["auto", "block"] = "auto"
    """The feature: φ(s,a) if the critic takes the action, else [φ(s); a] (auto), or φ(s) in the block of action a, with
    separate predictors for each action (block)."""
    phi_norm: Positive | None = None
    """Rescale every φ to this length."""


class ACB(ScaledExplorer):
    """The largest of the predictions; the loss is the mean squared error against fresh noise, with φ held constant."""

    Config = ACBConfig

    def __init__(self, config: ACBConfig, setting: Setting) -> None:
        super().__init__(config)
        if setting.embedding.form == "next_state":
            raise UserError("acb needs features of (s, a); use another embedding")
        if config.embedding == "block" and (setting.embedding.takes_action or not setting.embedding.discrete):
            raise UserError(
                "embedding=block needs discrete actions and a critic that takes only the state; use embedding=auto"
            )
        form: Form = setting.embedding.form if config.embedding == "auto" else config.embedding
        self.embedding = replace(setting.embedding, form=form, norm=config.phi_norm)
        self.compares_actions = not self.embedding.takes_action
        dim = self.embedding.dim() * self.embedding.blocks
        self.heads = nn.Linear(dim, config.ensemble, bias=False).to(self.embedding.device)
        nn.init.normal_(self.heads.weight)  # a prior of N(0, I), as in ridge regression with λ = 1
        self._generator = torch.Generator().manual_seed(setting.own_seed())

    def _predict(self, phi: Tensor, action: Tensor) -> Tensor:
        """wᵀφ of every predictor, [..., ensemble]."""
        if self.embedding.form == "block":  # φ in the block of its action, zero elsewhere
            chosen = F.one_hot(action.long(), self.embedding.blocks).to(phi)
            phi = (chosen.unsqueeze(-1) * phi.unsqueeze(-2)).flatten(-2)
        predicted: Tensor = self.heads(phi)
        return predicted

    def raw(self, steps: Transition) -> Tensor:
        phi = self.embedding(steps.obs, steps.action, steps.next_obs)
        return self._predict(phi, steps.action).abs().amax(-1)

    @torch.no_grad()
    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        return self._scale_only(self._predict(self.embedding(obs, action, next_obs), action).abs().amax(-1))

    @torch.no_grad()
    def measure_actions(self, obs: Tree) -> tuple[Tensor, Tensor]:
        phi = self.embedding.each_action(obs)
        actions = torch.arange(self.embedding.action_dim, device=phi.device)
        return self._scale_only(self._predict(phi, actions).abs().amax(-1))

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            # Of an unroll without the row after its last step.
            state = None if phi is None else phi[: len(batch)]
            features = self.embedding(batch.obs, batch.action, batch.next_obs, state=state)
        predicted = self._predict(features.detach(), batch.action)
        noise = torch.randn(predicted.shape, generator=self._generator).to(predicted)
        out: Tensor = (predicted - noise).square().mean()
        return out

    def get_extra_state(self) -> dict[str, Any]:
        return super().get_extra_state() | {"generator": self._generator.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self._generator.set_state(state["generator"])
