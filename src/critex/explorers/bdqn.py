"""BDQN (Azizzadenesheli et al., 2018): Thompson sampling of each action's last layer.

A_a = λI + Σφφᵀ over the visits of action a,    Δw_a ~ N(0, A_a⁻¹) held for many steps,    β(s,a) = Δw_aᵀφ(s)

With bonus_in=value and α = σ_ε the agent acts by (w_a + αΔw_a)ᵀφ(s), and targets use the means w_a, as in BDQN. The means
are the critic's own last layer, trained by gradient descent, whereas BDQN solves its regression in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from critex.data import Transition
from critex.explorers.base import Setting
from critex.explorers.elliptical import Elliptical, EllipticalConfig, FormOption
from critex.explorers.scaling import Scaling
from critex.ranges import Count


@dataclass(frozen=True)
class BDQNConfig(EllipticalConfig):
    """Options of BDQN: those of CAE with one posterior for each action."""

    scaling: Scaling = "none"
    strategy: str = "thompson"
    embedding: FormOption = "block"
    """φ(s) in the block of action a: a posterior for each action."""
    sample_every: Count = 1000
    """With bonus_in=value: environment steps between two draws of the weights."""


class BDQN(Elliptical):
    """The elliptical bonus by Thompson sampling, its draw held for `sample_every` steps."""

    Config = BDQNConfig
    in_targets = False

    def __init__(self, config: BDQNConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self._period = config.sample_every

    def _pay(
        self, quadratic: Tensor, step: Transition, projected: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        held, before = self._delta, self._steps
        paid = super()._pay(quadratic, step, projected)
        self._delta = held if before // self._period == self._steps // self._period else None
        return paid
