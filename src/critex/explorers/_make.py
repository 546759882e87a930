"""Build an explorer from the name of a method, and refuse options that exclude each other."""

from __future__ import annotations

import math
from dataclasses import is_dataclass
from functools import cache
from typing import Any

from critex.errors import UserError
from critex.explorers._alpha import Alpha
from critex.explorers.base import Explorer, Setting
from critex.explorers.mixing import ExplorationConfig
from critex.registry import Registry

EXPLORERS = Registry(
    "explorer",
    {
        "none": "critex.explorers.none:NoExplorer",
        "cae": "critex.explorers.cae:CAEExplorer",
        "cae_plus": "critex.explorers.cae_plus:CAEPlusExplorer",
        "e3b": "critex.explorers.e3b:E3B",
        "rnd": "critex.explorers.rnd:RND",
        "icm": "critex.explorers.icm:ICM",
        "ride": "critex.explorers.ride:RIDE",
        "noveld": "critex.explorers.noveld:NovelD",
        "counts": "critex.explorers.counts:Counts",
        "acb": "critex.explorers.acb:ACB",
        "bdqn": "critex.explorers.bdqn:BDQN",
    },
)


@cache
def explorer_class(name: str) -> type[Any]:
    """The explorer of that name, or the product or sum of two, as in `e3b*noveld`; its options are its `Config`."""
    if parts := split_combination(name):
        from critex.explorers.combination import combination

        symbol, first, second = parts
        if name.lower() == "cae+":
            raise UserError("the explorer CAE+ is called cae_plus")
        if {"none", ""} & {first, second}:
            raise UserError(f"{name} combines an explorer with none; name two explorers, or one alone")
        return combination(symbol, explorer_class(first), explorer_class(second))
    found: type[Any] = EXPLORERS.get_or_error(name)
    if not (isinstance(found, type) and issubclass(found, Explorer) and is_dataclass(found.Config)):
        raise UserError(f"explorer {name!r} is not a critex.explorers.Explorer with a dataclass Config")
    return found


def split_combination(name: str) -> tuple[str, str, str] | None:
    """(+ or *, first, second) of a combination, or None; * binds more tightly."""
    for symbol in "+*":
        first, found, second = name.partition(symbol)
        if found:
            return symbol, first, second
    return None


def make_explorer(cfg: ExplorationConfig, setting: Setting, *, rollouts: bool = False) -> Explorer:
    """The explorer that an algorithm's options name; `rollouts`: the algorithm learns from rollouts [T, N]."""
    cls = explorer_class(cfg.explorer)
    options = cls.Config() if cfg.bonus is None else cfg.bonus
    if not isinstance(options, cls.Config):
        raise UserError(f"explorer {cfg.explorer} takes {cls.Config.__name__}, not {type(options).__name__}")
    _check_value_bonus(cfg, setting, options)
    explorer: Explorer = cls(options, setting)
    alpha = 0.0 if cfg.explorer == "none" else cfg.alpha
    stored = cfg.bonus_in == "reward" and not cfg.recompute
    explorer.alpha = Alpha(alpha, getattr(cfg, "gamma", 0.99), _total(cfg, rollouts), in_reward=stored)
    if cfg.bonus_in == "value" or cfg.recompute:
        _check_measured_later(cfg, explorer, options, rollouts)
    for path, part in _flattened(options):
        _check_learner(path, part, rollouts)
    return explorer


def _total(cfg: Any, rollouts: bool) -> float:
    """Steps of a run, in whole rollouts."""
    steps = getattr(cfg, "steps", math.inf)
    each = getattr(cfg, "rollout", getattr(cfg, "unroll", 1)) * getattr(cfg, "num_envs", 1)
    return steps // each * each if rollouts and math.isfinite(steps) else steps


def _check_value_bonus(cfg: ExplorationConfig, setting: Setting, options: Any) -> None:
    """Refuse contradictory options for bonus_in=value."""
    if cfg.bonus_in == "value" and not setting.embedding.discrete:
        raise UserError(
            "bonus_in=value compares the bonuses of all actions, which needs discrete ones; use bonus_in=reward"
        )
    if cfg.bonus_in == "value" and getattr(options, "embedding", "") == "next_state":
        raise UserError(
            "bonus_in=value compares actions, and φ(s') of one not taken is unknown; use --bonus.embedding block"
        )
    if cfg.bonus_in == "value" and cfg.recompute:
        raise UserError("bonus_in=value always recomputes the bonus; recompute is for bonus_in=reward")
    if cfg.bonus_in == "reward" and cfg.scale_value_bonus:
        raise UserError(
            "scale_value_bonus is for bonus_in=value; a bonus in the reward follows --bonus.scaling"
        )
    if cfg.recompute and isinstance(cfg.alpha, str):
        raise UserError(f"alpha={cfg.alpha} is set from the bonuses as they were paid; leave recompute off")
    scaled = any(getattr(part, "scaling", "none") != "none" for _, part in _flattened(options))
    if cfg.bonus_in == "value" and isinstance(cfg.alpha, str) and scaled and not cfg.scale_value_bonus:
        raise UserError(
            f"alpha={cfg.alpha} is set from the scaled bonus, but bonus_in=value adds the raw one; use --scale-value-bonus "
            "or --bonus.scaling none"
        )


def _check_measured_later(cfg: ExplorationConfig, explorer: Explorer, options: Any, rollouts: bool) -> None:
    """Refuse bonus_in=value and recompute for bonuses that depend on when they are measured."""
    which = "bonus_in=value" if cfg.bonus_in == "value" else "recompute"
    if cfg.recompute and rollouts:
        raise UserError(
            "recompute is for replayed transitions; this algorithm learns from each rollout at once, so leave it off"
        )
    if cfg.bonus_in == "value" and not explorer.compares_actions:
        raise UserError(
            f"explorer {cfg.explorer} cannot compare actions with these options; use bonus_in=reward"
        )
    if explorer.episodic:
        hint = "use --bonus.scope lifelong" if hasattr(options, "scope") else f"{cfg.explorer} has none"
        raise UserError(f"{which} needs a memory that outlives the episode; {hint}")
    parts = (part for part in explorer.modules() if isinstance(part, Explorer))
    if cfg.recompute and not all(part.measures for part in parts):
        raise UserError(f"explorer {cfg.explorer} cannot compute a stored bonus again; leave recompute off")
    for path, part in _flattened(options):
        if getattr(part, "zero_first", False):
            raise UserError(f"{which} cannot tell which step begins an episode; use --{path}.no-zero-first")
        if getattr(part, "thompson_hold", False):
            raise UserError(
                f"thompson_hold is for bonuses stored as rewards, and {which} draws its own Δθ; use "
                f"--{path}.no-thompson-hold"
            )
        if cfg.recompute and getattr(part, "of", "") == "next_state" and part.key in ("auto", "position"):
            raise UserError(
                f"recompute cannot count positions, which a replay buffer does not store; use --{path}.key obs"
            )


def _check_learner(path: str, options: Any, rollouts: bool) -> None:
    """Refuse options that this kind of algorithm does not support."""
    if not rollouts and getattr(options, "scaling", None) == "batch":
        raise UserError(
            "scaling=batch needs an algorithm that learns from rollouts; use --bonus.scaling welford, with another "
            "--alpha: bonuses are then larger"
        )
    if not rollouts and getattr(options, "cross_episode_ends", False):
        raise UserError(
            "cross_episode_ends needs an algorithm that learns from rollouts; a replay buffer stores s' itself; use "
            f"--{path}.no-cross-episode-ends"
        )
    if rollouts and getattr(options, "rebuild_every", False):
        raise UserError(
            "rebuild_every needs a replay buffer, which this algorithm does not have; leave it at 0"
        )


def _flattened(options: Any, path: str = "bonus") -> list[tuple[str, Any]]:
    """The options and, for a combination, those of its parts, with the name of each on the command line."""
    parts = [
        (f"{path}.{name}", getattr(options, name)) for name in ("first", "second") if hasattr(options, name)
    ]
    return [(path, options), *(inner for name, part in parts for inner in _flattened(part, name))]
