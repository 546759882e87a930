"""What works on a family of environments, from families.toml: the defaults of its ids."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from critex.envs import family_of
from critex.errors import UserError


@cache
def family_table() -> dict[str, Any]:
    """Families by name, each with tables of options by algorithm, `bonus` and `alpha` by explorer."""
    return tomllib.loads((files("critex.algorithms") / "families.toml").read_text("utf-8"))


def family_settings(algorithm: str, explorer: str, env_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options of the algorithm, options of the explorer) for an id; empty where its family has none."""
    table = family_table().get(family_of(env_id) or "", {})
    if algorithm not in table:
        return {}, {}
    said = {name: tuple(x) if isinstance(x, list) else x for name, x in table[algorithm].items()}
    if explorer in table["alpha"]:
        said["alpha"] = table["alpha"][explorer]
    return said, dict(table["bonus"].get(explorer, {}))


def require_family(preset: str, env_id: str) -> None:
    """A preset that is named after a family is for its ids only."""
    if preset in family_table() and family_of(env_id) != preset:
        raise UserError(f"preset {preset} is for the environments of {preset}, which {env_id} is not")
