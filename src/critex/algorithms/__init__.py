"""Algorithms, one readable file each. Every module has `Config`, `Agent` and `train(cfg, run)`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from critex.algorithms.families import family_settings, family_table, require_family
from critex.algorithms.paper import added_networks, paper_settings
from critex.errors import UserError, unknown
from critex.explorers import explorer_class, explorer_preset
from critex.run import from_dict

ALGORITHMS = ("dqn", "dsac", "ppo", "ppo_recurrent", "sac", "td3")


def algorithm_module(name: str) -> ModuleType:
    """The module of an algorithm."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return import_module(f"critex.algorithms.{name}")


def default_config(
    name: str, explorer: str = "none", preset: str | None = None, env: str | None = None
) -> Any:
    """The options of an algorithm with an explorer: the defaults, what works on the family of `env`, the preset.

    A preset looks at `env` as well: `paper` and `official` know the networks of CAE+ on MiniHack, and `paper` knows α
    and the number of steps of the paper's own tasks. A preset named after a family, such as `minigrid`, says only
    that its settings are meant, which they are anyway on its ids.
    """
    config, options = algorithm_module(name).Config, explorer_class(explorer).Config
    env = env or config.env
    said, about_bonus = family_settings(name, explorer, env)
    if preset is not None and preset in family_table():
        require_family(preset, env)
    elif preset is not None:
        about_bonus, about = explorer_preset(explorer, preset)
        if explorer == "cae_plus":
            about_bonus |= added_networks(env)
        said |= (paper_settings(name, env) if preset == "paper" else {}) | about
    return config(explorer=explorer, preset=preset, bonus=options(**about_bonus), **said)


def load_config(name: str, data: dict[str, Any]) -> Any:
    """The options that a run's config.toml holds."""
    data = dict(data)
    bonus = data.pop("bonus", None)
    if bonus is not None and not isinstance(bonus, dict):
        raise UserError("config key 'bonus' must be a table")
    config = from_dict(algorithm_module(name).Config, data)
    config.bonus = from_dict(explorer_class(config.explorer).Config, bonus or {}, "bonus.")
    return config
