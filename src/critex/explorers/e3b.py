"""E3B (Henaff et al., 2022): the elliptical bonus over its own encoder, trained by inverse dynamics.

β = φ(s)ᵀA⁻¹φ(s), A = λI + Σφφᵀ of this episode;    L = −log p(a | φ(s), φ(s'))
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from critex.data import Transition
from critex.explorers._encoder import StateEncoder
from critex.explorers._inverse import InverseConfig, InverseDynamics, following, paired
from critex.explorers.base import Setting
from critex.explorers.elliptical import Elliptical, EllipticalConfig, FormOption, Scope
from critex.ranges import Count, Positive


@dataclass(frozen=True)
class E3BConfig(InverseConfig, EllipticalConfig):
    """Options of E3B: those of the elliptical bonus, with its authors' values, of the inverse dynamics and the encoder."""

    strategy: str = "ucb_squared"
    scope: Scope = "episodic"
    ridge: Positive = 0.1
    zero_first: bool = True
    embedding: FormOption = "state"
    """The feature, with E3B's own encoder φ: φ(s), [φ(s); a], φ(s'), or φ(s) in the block of action a."""
    width: Count = 128
    """Length of the state embedding φ(s)."""
    hidden: Count = 256
    """Hidden width of the inverse-dynamics network."""


class E3B(Elliptical):
    """The elliptical bonus of φ(s); owns the encoder φ and the inverse dynamics that train it."""

    Config = E3BConfig
    config: E3BConfig

    def __init__(self, config: E3BConfig, setting: Setting) -> None:
        encoder = StateEncoder(setting, config.width)
        own = encoder.embedding(setting, "state")
        super().__init__(config, replace(setting, embedding=own))
        self.encoder = encoder
        self.inverse = InverseDynamics(config.width, own, config.hidden, config)

    def _bonus_rollout(self, rollout: Transition, phi: Tensor | None) -> tuple[Tensor, Tensor]:
        return super()._bonus_rollout(rollout, None)  # φ is its own, not the critic's

    def prepare(self, rollout: Transition) -> Transition:
        return paired(rollout, self.config)

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        """Mean of −log p(a | φ(s), φ(s')); its gradient reaches the encoder and the inverse dynamics."""
        loss: Tensor = self.inverse(self.encoder(batch.obs), self.encoder(following(batch)), batch.action)
        return loss.mean()
