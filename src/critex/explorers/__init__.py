"""Exploration methods behind one protocol."""

from __future__ import annotations

from typing import Any

from critex.errors import UserError, unknown
from critex.explorers.base import Explorer, NoOptions, Setting
from critex.explorers.cae import CAE
from critex.explorers.cae_plus import CAEPlus, CAEPlusConfig
from critex.explorers.counts import Counts, CountsConfig
from critex.explorers.e3b import E3B, E3BConfig
from critex.explorers.elliptical import Elliptical, EllipticalConfig
from critex.explorers.icm import ICM, ICMConfig
from critex.explorers.mixing import ExplorationConfig, reshaped, value_bonus
from critex.explorers.none import NoExplorer
from critex.explorers.noveld import NovelD, NovelDConfig
from critex.explorers.presets import ALGORITHM_PRESETS, PRESETS, preset_options
from critex.explorers.ride import RIDE, RIDEConfig
from critex.explorers.rival import RivalConfig
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
}

__all__ = [
    "ALGORITHM_PRESETS",
    "CAE",
    "E3B",
    "EXPLORERS",
    "ICM",
    "PRESETS",
    "RIDE",
    "RND",
    "CAEPlus",
    "CAEPlusConfig",
    "Counts",
    "CountsConfig",
    "E3BConfig",
    "Elliptical",
    "EllipticalConfig",
    "ExplorationConfig",
    "Explorer",
    "ICMConfig",
    "NoExplorer",
    "NoOptions",
    "NovelD",
    "NovelDConfig",
    "RIDEConfig",
    "RivalConfig",
    "Setting",
    "explorer_class",
    "make_explorer",
    "preset_options",
    "reshaped",
    "value_bonus",
]


def explorer_class(name: str) -> type[Any]:
    """The explorer of that name; its options are its `Config`."""
    if name not in EXPLORERS:
        raise unknown("explorer", name, EXPLORERS)
    return EXPLORERS[name]


def make_explorer(cfg: ExplorationConfig, setting: Setting, *, rollouts: bool = False) -> Explorer:
    """The explorer that an algorithm's options name; `rollouts`: the algorithm learns from rollouts [T, N]."""
    cls = explorer_class(cfg.explorer)
    options = cls.Config() if cfg.bonus is None else cfg.bonus
    if not isinstance(options, cls.Config):
        raise UserError(f"explorer {cfg.explorer} takes {cls.Config.__name__}, not {type(options).__name__}")
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
    explorer: Explorer = cls(options, setting)
    if cfg.bonus_in == "value" and not explorer.compares_actions:
        raise UserError(f"explorer {cfg.explorer} cannot compare actions; use bonus_in=reward")
    if explorer.episodic and (cfg.bonus_in == "value" or cfg.recompute):
        option = "bonus_in=value" if cfg.bonus_in == "value" else "recompute"
        raise UserError(f"{option} needs a memory that outlives the episode; use --bonus.scope lifelong")
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
    return explorer
