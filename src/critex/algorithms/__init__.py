"""Algorithms, one readable file each. Every module has `Config`, `Agent` and `train(cfg, run)`."""

from __future__ import annotations

from typing import Any

from critex.errors import UserError
from critex.registry import Registry

ALGORITHMS = Registry(
    "algorithm",
    {name: f"critex.algorithms.{name}" for name in "dqn dsac impala ppo ppo_recurrent sac td3".split()},
)


UNLISTED = Registry("reference", {"reference": "critex.algorithms.reference"})
"""Used like an algorithm in `critex train` and in suites, but does not learn."""


def algorithm_module(name: str) -> Any:
    """The module of an algorithm, from critex or from an installed package."""
    module = UNLISTED[name] if name in UNLISTED.own else ALGORITHMS.get_or_error(name)
    missing = [part for part in ("Config", "Agent", "train") if not hasattr(module, part)]
    if missing:
        raise UserError(f"algorithm {name!r} ({module}) does not define {', '.join(missing)}")
    return module


def load_config(name: str, data: dict[str, Any], *, allow_import: bool = False) -> Any:
    """The options in a run's config.toml. A config that would import a module is refused unless `allow_import`."""
    from critex.envs.families import refuse_import  # this loads torch; the names above do not
    from critex.explorers import explorer_class
    from critex.run import from_dict

    data = dict(data)
    bonus = data.pop("bonus", None)
    if bonus is not None and not isinstance(bonus, dict):
        raise UserError("config key 'bonus' must be a table")
    config = from_dict(algorithm_module(name).Config, data)
    if not allow_import:
        for env in (config.env, getattr(config, "eval_env", "")):
            refuse_import(env, "the run's config.toml")
    config.bonus = from_dict(explorer_class(config.explorer).Config, bonus or {}, "bonus.")
    return config
