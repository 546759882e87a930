"""ICM (Pathak et al., 2017): what the own forward model predicts wrongly is new.

β = ‖F(φ(s), a) − φ(s')‖₂;    L = forward_coef·‖F(φ(s), a) − φ(s')‖₂ − inverse_coef·log p(a | φ(s), φ(s'))
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree
from critex.errors import require_at_least
from critex.explorers.base import Setting
from critex.explorers.inverse import InverseDynamics, follow
from critex.explorers.rival import Rival, RivalConfig, StateEncoder
from critex.networks import mlp


@dataclass(frozen=True)
class ICMConfig(RivalConfig):
    """Options of ICM."""

    hidden: int = 256
    """Hidden width of the inverse-dynamics network."""
    forward_coef: float = 1.0
    """Weight of the forward model in the loss."""
    inverse_coef: float = 0.1
    """Weight of the inverse dynamics in the loss."""
    cross_episode_ends: bool = False
    """Pair the last state of an episode with the first of the next one, as the released code does; needs an
    algorithm that learns from rollouts in time order. Otherwise s' is the true final observation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, hidden=1, forward_coef=0, inverse_coef=0)


class ICM(Rival):
    """Owns the encoder φ, the forward model F and the inverse dynamics; φ(s') carries gradient, too."""

    Config = ICMConfig

    def __init__(self, config: ICMConfig, setting: Setting) -> None:
        super().__init__(config)
        self.options = config
        self.encoder = StateEncoder(setting, config.width)
        self.pair = self.encoder.embedding(setting, "state_and_action")  # [φ(s); a]
        width, device = config.width, self.pair.device
        self.forward_model = nn.Sequential(mlp([self.pair.dim(), width]), nn.Linear(width, width)).to(device)
        self.inverse = InverseDynamics(
            width, self.pair.action_dim, discrete=self.pair.discrete, hidden=config.hidden
        ).to(device)

    def error(self, here: Tensor, action: Tensor, there: Tensor) -> Tensor:
        """‖F(φ(s), a) − φ(s')‖₂ of embeddings [..., width], [...]."""
        error: Tensor = (self.forward_model(self.pair({}, action, state=here)) - there).norm(dim=-1)
        return error

    def raw(self, steps: Transition) -> Tensor:
        return self.error(self.encoder(steps.obs), steps.action, self.encoder(steps.next_obs))

    def _bonus_rollout(self, rollout: Transition, phi: Tensor | None) -> tuple[Tensor, Tensor]:
        return super()._bonus_rollout(self.prepare(rollout), phi)

    def prepare(self, rollout: Transition) -> Transition:
        return replace(rollout, next_obs=follow(rollout)) if self.options.cross_episode_ends else rollout

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        here, there = self.encoder(batch.obs), self.encoder(batch.next_obs)
        forward = self.error(here, batch.action, there).mean()
        inverse: Tensor = self.inverse(here, there, batch.action).mean()
        return self.options.forward_coef * forward + self.options.inverse_coef * inverse

    @torch.no_grad()
    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        if next_obs is None:
            raise ValueError("the error of a prediction needs next_obs")
        return self._as_of_now(self.error(self.encoder(obs), action, self.encoder(next_obs)))
