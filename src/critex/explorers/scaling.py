"""Bonus scaling, shared by all explorers that scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from critex.bonus import BatchMomentScaler, NoScaler, WelfordScaler
from critex.data import Transition
from critex.errors import UserError
from critex.explorers.base import Explorer
from critex.ranges import Natural, Options

Scaling = Literal["welford", "batch", "none"]


@dataclass(frozen=True)
class ScalingConfig(Options):
    """How the bonus is scaled."""

    scaling: Scaling = "none"
    """How to scale the bonus: divide it by its running standard deviation at collection (welford), by batch moments
    in the learner (batch; only for algorithms that learn from rollouts), or leave it unscaled (none)."""
    warmup: Natural = 0
    """Steps whose bonus stays unscaled while the running standard deviation settles."""
    count_rows: bool = False
    """With scaling=batch: sum all T·N entries of a batch [T, N] but count only its T rows, as the released code does.
    The bonus is then much smaller."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup and self.scaling != "welford":
            raise UserError(f"warmup is for scaling=welford, not {self.scaling}")


class ScaledExplorer(Explorer):
    """An explorer that computes a raw bonus and leaves the scaling to its options.

    A subclass defines `raw`, which takes one step [N] and a rollout [T, N] alike, so that a rollout is a single pass
    through its networks.
    """

    def __init__(self, config: ScalingConfig) -> None:
        super().__init__()
        self._in_learner = config.scaling == "batch"
        self.scaler: WelfordScaler | BatchMomentScaler | NoScaler
        match config.scaling:
            case "welford":
                self.scaler = WelfordScaler(warmup=config.warmup)
            case "batch":
                self.scaler = BatchMomentScaler(count_rows=config.count_rows)
            case "none":
                self.scaler = NoScaler()

    def raw(self, steps: Transition) -> Tensor:
        """The unscaled bonus of transitions in time order, [N] or [T, N]; advances the explorer's memory, if any."""
        raise NotImplementedError(f"{type(self).__name__} must define raw(steps)")

    def _bonus(self, step: Transition) -> tuple[Tensor, Tensor]:
        raw = self.raw(step)
        if not isinstance(raw, Tensor) or raw.shape != step.reward.shape:
            found = list(raw.shape) if isinstance(raw, Tensor) else type(raw).__name__
            wanted = list(step.reward.shape)
            raise UserError(
                f"{type(self).__name__}.raw must return a tensor {wanted}, as the reward; got {found}"
            )
        return self._scale_and_update(raw)

    def _bonus_rollout(self, rollout: Transition, phi: Tensor | None) -> tuple[Tensor, Tensor]:
        return ScaledExplorer._bonus(self, rollout)

    def _scale_and_update(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """(raw, scaled); the running moments include this bonus."""
        return raw, raw if self._in_learner else self.scaler(raw)

    def _scale_only(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """(raw, scaled); the running moments do not change."""
        return raw, raw if self._in_learner else self.scaler.scale(raw)

    def scale(self, bonus: Tensor) -> Tensor:
        scaled: Tensor = self.scaler(bonus) if self._in_learner else bonus
        return scaled
