"""Counts: the oracle where states can be told apart, as on tabular tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from critex.data import Transition
from critex.data.tree import Tree
from critex.errors import UserError
from critex.explorers.base import Setting
from critex.explorers.rival import Rival
from critex.explorers.scaling import ScalingConfig
from critex.explorers.tally import Key, Of, Tally


@dataclass(frozen=True)
class CountsConfig(ScalingConfig):
    """Options of the counts."""

    kind: Literal["inverse_root", "first_visit"] = "inverse_root"
    """1/√N, or 1 for the first visit and 0 from then on."""
    scope: Literal["lifelong", "episodic"] = "lifelong"
    """Count over the whole run, or within an episode of each env."""
    of: Of = "next_state"
    """Count the states that were reached, or the states with the (discrete) action taken in them."""
    key: Key = "auto"
    """When two states are the same: position (where the env gives one), image, or obs, the whole observation as
    the agent sees it (of use where observations recur exactly: no running normalisation, no real numbers).
    auto: position where there is one, else obs."""


class Counts(Rival):
    """β = 1/√N or 1[N = 1], N the visits of s' or of (s, a), the current one included.

    Lifelong counts of (s, a) are the elliptical bonus of one-hot φ(s,a) at λ = 1: φᵀA⁻¹φ = 1/N.
    """

    Config = CountsConfig

    def __init__(self, config: CountsConfig, setting: Setting) -> None:
        super().__init__(config)
        self.config = config
        self.episodic = config.scope == "episodic"
        self.compares_actions = config.of == "state_action"
        self.tally = Tally(config.key, setting, episodic=self.episodic, of=config.of)

    def raw(self, steps: Transition) -> Tensor:
        return self._paid(self.tally.visit(steps))

    def _paid(self, n: Tensor) -> Tensor:
        return (n == 1).float() if self.config.kind == "first_visit" else n.float().rsqrt()

    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        """What a visit now would be paid."""
        return self._as_of_now(self._paid(self.tally.count(self.tally.keys(obs, action, next_obs)) + 1))

    def measure_actions(self, obs: Tree) -> tuple[Tensor, Tensor]:
        if not self.compares_actions:
            raise UserError("counts of s' cannot compare actions; use --bonus.of state_action")
        return self._as_of_now(self._paid(self.tally.count(self.tally.action_keys(obs)) + 1))
