"""Combinations of two explorers: the bonus of `e3b*noveld` is a product, the bonus of `rnd+counts` a sum."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from critex.data import Replay, Transition, derive_seed
from critex.data.tree import Tree
from critex.errors import UserError
from critex.explorers.base import Explorer, Setting
from critex.explorers.scaling import ScaledExplorer, ScalingConfig

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class CombinationConfig(ScalingConfig):
    """Options of a combination: those of its parts are `first` and `second`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = self.parts()
        for own in fields(self):
            kind, part = own.type, getattr(self, own.name)
            if own.name in ("first", "second") and isinstance(kind, type) and not isinstance(part, kind):
                raise UserError(f"{own.name} takes {kind.__name__}(…), not a {type(part).__name__}")
        if any(getattr(part, "scaling", None) == "batch" for part in parts):
            raise UserError(
                "scaling=batch is for the combination, not for its parts; use --bonus.scaling batch and "
                "--bonus.first.scaling none --bonus.second.scaling none"
            )
        if len({getattr(part, "cross_episode_ends", None) for part in parts} - {None}) > 1:
            raise UserError("cross_episode_ends must be the same for both parts of a combination")

    def parts(self) -> list[Any]:
        """The options of both explorers."""
        return [getattr(self, name) for name in ("first", "second") if hasattr(self, name)]


class Combination(ScaledExplorer):
    """β = β₁·β₂ or β₁ + β₂ of the scaled bonuses of two explorers; the result may be scaled again."""

    Config: ClassVar[type] = CombinationConfig
    symbol: ClassVar[str]
    explorers: ClassVar[tuple[type[Any], type[Any]]]

    def __init__(self, config: Any, setting: Setting) -> None:
        super().__init__(config)
        first, second = self.explorers
        self.first: Explorer = first(config.first, setting)
        # A random stream of its own, also beside the two of a product.
        name = "third" if isinstance(self.first, Combination) else "second"
        other = replace(setting, seed=derive_seed(setting.seed, name))
        self.second: Explorer = second(config.second, other)
        self._parts = (self.first, self.second)
        self.episodic = any(part.episodic for part in self._parts)
        self.compares_actions = all(part.compares_actions for part in self._parts)
        self.in_targets = all(part.in_targets for part in self._parts)

    def _join(self, *parts: Pair) -> Pair:
        """(raw, scaled) of the parts combined, before the combination itself is scaled."""
        (raw1, scaled1), second = parts
        # A Gram memory may be on the CPU, a network on a GPU.
        raw2, scaled2 = (x.to(raw1.device) for x in second)
        if self.symbol == "*":
            return raw1 * raw2, scaled1 * scaled2
        return raw1 + raw2, scaled1 + scaled2

    def _bonus(self, step: Transition) -> Pair:
        raw, joined = self._join(*(part._bonus(step) for part in self._parts))
        return raw, self._scale_and_update(joined)[1]

    def _bonus_rollout(self, rollout: Transition, phi: Tensor | None) -> Pair:
        raw, joined = self._join(*(part._bonus_rollout(rollout, phi) for part in self._parts))
        return raw, self._scale_and_update(joined)[1]

    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> Pair:
        raw, joined = self._join(*(part.measure(obs, action, next_obs) for part in self._parts))
        return raw, self._scale_only(joined)[1]

    def measure_actions(self, obs: Tree) -> Pair:
        raw, joined = self._join(*(part.measure_actions(obs) for part in self._parts))
        return raw, self._scale_only(joined)[1]

    def prepare(self, rollout: Transition) -> Transition:
        return self.second.prepare(self.first.prepare(rollout))

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        return self.first.loss(batch, phi) + self.second.loss(batch, phi)

    def refresh(self, replay: Replay) -> None:
        for part in self._parts:
            part.refresh(replay)

    def metrics(self) -> dict[str, float]:
        parts = {"first": self.first, "second": self.second}
        own = {f"{which}_{name}": x for which, part in parts.items() for name, x in part.metrics().items()}
        return super().metrics() | own


def combination(symbol: str, first: type[Any], second: type[Any]) -> type[Combination]:
    """The class of the product (*) or the sum (+) of two explorers, with options `first` and `second`."""
    parts = [
        (name, part.Config, field(default_factory=part.Config))
        for name, part in (("first", first), ("second", second))
    ]
    config = make_dataclass("CombinationConfig", parts, bases=(CombinationConfig,), frozen=True)
    body = {"Config": config, "symbol": symbol, "explorers": (first, second)}
    return type(f"{first.__name__}{symbol}{second.__name__}", (Combination,), body)
