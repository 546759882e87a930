"""Algorithms, one readable file each. Every module has `Config`, `Agent` and `train(cfg, run)`."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import Any

from critex.errors import UserError, unknown
from critex.explorers import ALGORITHM_PRESETS, PRESETS, explorer_class, preset_options
from critex.run import from_dict

ALGORITHMS = ("dqn", "dsac", "ppo", "sac", "td3")


def algorithm_module(name: str) -> ModuleType:
    """The module of an algorithm."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return import_module(f"critex.algorithms.{name}")


def default_config(name: str, explorer: str = "none", preset: str | None = None) -> Any:
    """The options of an algorithm with an explorer: the defaults, with what the preset says on top."""
    config, options = algorithm_module(name).Config, explorer_class(explorer).Config
    said: dict[str, Any] = {}
    if preset is not None:
        if preset not in PRESETS:
            raise unknown("preset", preset, PRESETS)
        known = {field.name for field in fields(config)}
        said = {key: value for key, value in ALGORITHM_PRESETS[preset].items() if key in known}
        options_said = preset_options(options, preset)
    else:
        options_said = {}
    return config(explorer=explorer, preset=preset, bonus=options(**options_said), **said)


def load_config(name: str, data: dict[str, Any]) -> Any:
    """The options that a run's config.toml holds."""
    data = dict(data)
    bonus = data.pop("bonus", None)
    if bonus is not None and not isinstance(bonus, dict):
        raise UserError("config key 'bonus' must be a table")
    config = from_dict(algorithm_module(name).Config, data)
    config.bonus = from_dict(explorer_class(config.explorer).Config, bonus or {}, "bonus.")
    return config
