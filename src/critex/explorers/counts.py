"""Visit counts: the oracle bonus if states can be told apart, as on tabular tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from critex.data import Transition
from critex.data.tree import Tree
from critex.errors import UserError
from critex.explorers._visit_counts import Key, Of, VisitCounts
from critex.explorers.base import Setting
from critex.explorers.scaling import ScaledExplorer, ScalingConfig


@dataclass(frozen=True)
class CountsConfig(ScalingConfig):
    """Options of the counts."""

    kind: Literal["inverse_root", "first_visit"] = "inverse_root"
    """1/√N, or 1 for the first visit and 0 afterwards."""
    scope: Literal["lifelong", "episodic"] = "lifelong"
    """Count over the whole run (lifelong), or within each episode of each env (episodic)."""
    of: Of = "next_state"
    """Count the states reached, or pairs of a state and the (discrete) action taken in it."""
    key: Key = "auto"
    """When two states count as the same: same position (if the env reports one), same image (all images in the
    observation), or same obs (the whole observation as the agent sees it; useful only if observations repeat
    exactly). auto: position if there is one, else obs."""
    count_start: bool = True
    """Count the first state of an episode as visited."""


class Counts(ScaledExplorer):
    """β = 1/√N or 1[N = 1], where N counts the visits to s' or to (s, a), including the current one.

    Lifelong counts of (s, a) are the elliptical bonus of one-hot φ(s,a) at λ = 1: φᵀA⁻¹φ = 1/N.
    """

    Config = CountsConfig

    def __init__(self, config: CountsConfig, setting: Setting) -> None:
        super().__init__(config)
        self.config = config
        self.episodic = config.scope == "episodic"
        self.compares_actions = config.of == "state_action"
        self.tally = VisitCounts(
            config.key, setting, episodic=self.episodic, of=config.of, count_start=config.count_start
        )

    def raw(self, steps: Transition) -> Tensor:
        return self._of_visits(self.tally.visit(steps))

    def _of_visits(self, n: Tensor) -> Tensor:
        return (n == 1).float() if self.config.kind == "first_visit" else n.float().rsqrt()

    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        """The bonus for one more visit."""
        n = self.tally.count(self.tally.keys(obs, action, next_obs))
        return self._scale_only(self._of_visits(n + 1))

    def measure_actions(self, obs: Tree) -> tuple[Tensor, Tensor]:
        if not self.compares_actions:
            raise UserError("counts of s' cannot compare actions; use --bonus.of state_action")
        return self._scale_only(self._of_visits(self.tally.count(self.tally.action_keys(obs)) + 1))
