"""RIDE (Raileanu & Rocktäschel, 2020): the bonus is the size of the change that a step makes, smaller for repeated visits.

β = ‖φ(s') − φ(s)‖₂ / √N_ep(s'), φ trained as in ICM
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from critex.data import Transition
from critex.data.tree import Tree
from critex.errors import UserError
from critex.explorers._inverse import following
from critex.explorers._visit_counts import EpisodicCountConfig, VisitCounts
from critex.explorers.base import Setting
from critex.explorers.icm import ICM, ICMConfig


@dataclass(frozen=True)
class RIDEConfig(EpisodicCountConfig, ICMConfig):
    """Options of RIDE."""


class RIDE(ICM):
    """The networks and the loss of ICM; the bonus is the impact of the action over an episodic count."""

    Config = RIDEConfig
    episodic = True

    def __init__(self, config: RIDEConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.tally = VisitCounts(config.key, setting, episodic=True, count_start=config.count_start)

    def raw(self, steps: Transition) -> Tensor:
        impact: Tensor = (self.encoder(following(steps)) - self.encoder(steps.obs)).norm(dim=-1)
        return impact * self.tally.visit(steps).rsqrt()

    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        raise UserError("ride cannot measure a bonus later: it depends on the counts of its episode")
