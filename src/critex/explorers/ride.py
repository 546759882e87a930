"""RIDE (Raileanu & Rocktäschel, 2020): what changes the state, and leads where this episode has not been.

β = ‖φ(s') − φ(s)‖₂ / √N_ep(s'), φ trained as in ICM
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from critex.data import Transition
from critex.explorers.base import Setting
from critex.explorers.icm import ICM, ICMConfig
from critex.explorers.tally import Key, Tally


@dataclass(frozen=True)
class RIDEConfig(ICMConfig):
    """Options of RIDE."""

    key: Key = "auto"
    """When two states of an episode are the same: position (where the env gives one), image, or obs, the whole
    observation as the agent sees it. auto: position where there is one, else obs."""


class RIDE(ICM):
    """The networks and the loss of ICM; the bonus is the impact of the action over an episodic count."""

    Config = RIDEConfig
    episodic = True

    def __init__(self, config: RIDEConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.tally = Tally(config.key, setting, episodic=True)

    def raw(self, steps: Transition) -> Tensor:
        impact: Tensor = (self.encoder(steps.next_obs) - self.encoder(steps.obs)).norm(dim=-1)
        return impact * self.tally.visit(steps).rsqrt()
