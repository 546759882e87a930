"""What the paper's runs used for each task, from paper.toml, for `--preset`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from critex.envs import family_of
from critex.errors import UserError

MILLION = 1_000_000


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files("critex.algorithms") / "paper.toml").read_text("utf-8"))


def added_networks(env_id: str) -> dict[str, int]:
    """The sizes of the networks that CAE+ adds, where they are not its defaults: on MiniHack."""
    return dict(_table()["minihack"]) if family_of(env_id) == "minihack" else {}


def paper_settings(algorithm: str, env_id: str) -> dict[str, Any]:
    """The options of the paper's run of a task: `alpha`, `steps`, and `env` with the options that the task needs.

    Empty where the paper has no MuJoCo runs: for other algorithms, and for other families of environments. A
    MuJoCo task that the paper does not have is an error: it has no α to take.
    """
    table = _table()
    if algorithm not in table["alpha"] or family_of(env_id) != "mujoco":
        return {}
    plain, _, options = env_id.partition("?")
    task, _, version = plain.rpartition("-")
    if task not in table["tasks"] or version not in table["versions"]:
        known = ", ".join(f"{name}-{v}" for v in table["versions"] for name in table["tasks"])
        raise UserError(f"the paper gives no α for {env_id}; --preset paper knows {known}")
    settings = {"alpha": table["alpha"][algorithm][task], "steps": table["steps"].get(task, MILLION)}
    if algorithm == "dsac":
        settings["steps"] = 10_000 + 20 * table["iterations"].get(task, MILLION)
    if not options and (query := table["env_options"].get(algorithm, {}).get(env_id)):
        settings["env"] = f"{env_id}?{query}"
    return settings
