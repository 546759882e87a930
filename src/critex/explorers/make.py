"""From the name of a method to its explorer, and which options do not go together."""

from __future__ import annotations

from functools import cache
from typing import Any

from critex.errors import UserError, unknown
from critex.explorers.acb import ACB
from critex.explorers.base import Explorer, Setting
from critex.explorers.bdqn import BDQN
from critex.explorers.cae import CAE
from critex.explorers.cae_plus import CAEPlus
from critex.explorers.combination import CombinationConfig, combination
from critex.explorers.counts import Counts
from critex.explorers.e3b import E3B
from critex.explorers.icm import ICM
from critex.explorers.mixing import ExplorationConfig
from critex.explorers.none import NoExplorer
from critex.explorers.noveld import NovelD
from critex.explorers.presets import ALGORITHM_PRESETS, RIVALS, preset_options
from critex.explorers.ride import RIDE
from critex.explorers.rnd import RND

EXPLORERS: dict[str, type[Any]] = {
    "none": NoExplorer,
    "cae": CAE,
    "cae_plus": CAEPlus,
    "e3b": E3B,
    "rnd": RND,
    "icm": ICM,
    "ride": RIDE,
    "noveld": NovelD,
    "counts": Counts,
    "acb": ACB,
    "bdqn": BDQN,
}


@cache
def explorer_class(name: str) -> type[Any]:
    """The explorer of that name, or the product or sum of two, as in `e3b*noveld`; its options are its `Config`."""
    if parts := _parts(name):
        symbol, first, second = parts
        return combination(symbol, explorer_class(first), explorer_class(second))
    if name not in EXPLORERS:
        raise unknown("explorer", name, EXPLORERS)
    return EXPLORERS[name]


def _parts(name: str) -> tuple[str, str, str] | None:
    """(+ or *, first, second) of a combination; * binds closer."""
    for symbol in "+*":
        first, found, second = name.partition(symbol)
        if found:
            return symbol, first, second
    return None


def explorer_preset(name: str, preset: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options of the explorer, options of the algorithm) that a preset sets for the explorer of that name.

    Where the parts of a combination would be scaled in the learner, the whole is, and they are not.
    """
    options: dict[str, Any] = {}
    if not (parts := _parts(name)):
        options = preset_options(explorer_class(name).Config, preset, name)
        alpha = RIVALS.get(name, {}).get("alpha")
    else:
        alpha = 1.0 if parts[0] == "*" else None
        for which, part in zip(("first", "second"), parts[1:], strict=True):
            about, _ = explorer_preset(part, preset)
            if about.get("scaling") == "batch":
                options |= {"scaling": "batch", "count_rows": about["count_rows"]}
                about["scaling"] = "none"
            options[which] = explorer_class(part).Config(**about)
    return options, ALGORITHM_PRESETS[preset] | ({} if alpha is None else {"alpha": alpha})


def make_explorer(cfg: ExplorationConfig, setting: Setting, *, rollouts: bool = False) -> Explorer:
    """The explorer that an algorithm's options name; `rollouts`: the algorithm learns from rollouts [T, N]."""
    cls = explorer_class(cfg.explorer)
    options = cls.Config() if cfg.bonus is None else cfg.bonus
    if not isinstance(options, cls.Config):
        raise UserError(f"explorer {cfg.explorer} takes {cls.Config.__name__}, not {type(options).__name__}")
    _check_value_bonus(cfg, setting, options)
    explorer: Explorer = cls(options, setting)
    again = "bonus_in=value" if cfg.bonus_in == "value" else "recompute" if cfg.recompute else ""
    if cfg.bonus_in == "value" and not explorer.compares_actions:
        raise UserError(
            f"explorer {cfg.explorer} cannot compare actions with these options; use bonus_in=reward"
        )
    if again and explorer.episodic:
        hint = "use --bonus.scope lifelong" if hasattr(options, "scope") else f"{cfg.explorer} has none"
        raise UserError(f"{again} needs a memory that outlives the episode; {hint}")
    for part in _with_parts(options):
        _check_place(part, rollouts)
    return explorer


def _check_value_bonus(cfg: ExplorationConfig, setting: Setting, options: Any) -> None:
    """Refuse options about the place of the bonus that contradict each other."""
    if cfg.bonus_in == "value" and not setting.embedding.discrete:
        raise UserError(
            "bonus_in=value compares the bonuses of all actions, which needs discrete ones; use bonus_in=reward"
        )
    if cfg.bonus_in == "value" and getattr(options, "embedding", "") == "next_state":
        raise UserError(
            "bonus_in=value compares actions, and φ(s') of one not taken is unknown; use --bonus.embedding block"
        )
    if cfg.bonus_in == "value" and cfg.recompute:
        raise UserError("bonus_in=value is always measured anew; recompute is for bonus_in=reward")
    if cfg.bonus_in == "reward" and cfg.scale_value_bonus:
        raise UserError(
            "scale_value_bonus is for bonus_in=value; a bonus in the reward follows --bonus.scaling"
        )


def _check_place(options: Any, rollouts: bool) -> None:
    """Refuse options that this kind of algorithm cannot follow."""
    if not rollouts and getattr(options, "scaling", None) == "batch":
        raise UserError(
            "scaling=batch needs an algorithm that learns from rollouts; use --bonus.scaling welford"
        )
    if not rollouts and getattr(options, "cross_episode_ends", False):
        raise UserError(
            "cross_episode_ends needs an algorithm that learns from rollouts; it has no meaning in replay"
        )
    if rollouts and getattr(options, "rebuild_every", False):
        raise UserError(
            "rebuild_every needs a replay buffer, which this algorithm does not have; leave it at 0"
        )


def _with_parts(options: Any) -> list[Any]:
    """The options and, of a combination, those of its parts."""
    if not isinstance(options, CombinationConfig):
        return [options]
    return [options, *(inner for part in options.parts() for inner in _with_parts(part))]
