"""Resolve algorithm, explorer, preset and environment to a config.

The format of a source, all of it optional:

    extends = "official"                   # start from another source
    family = "minigrid"                    # or ids = 'DeepSea-(?P<N>[1-9]\\d*)-v0': the settings are defaults on these ids
    tasks = ["Swimmer-v4"]                 # of the family, only these; others are an error
    [algorithm."ppo impala"]               # options of algorithms; `any` means every one
    [explorer."cae cae_plus"]              # α and other options of the algorithm; options of the explorer in `bonus`
    [algorithm.dqn.explorer.cae]           # the same for one algorithm
    [[section]]                            # all of the above for other ids

A value that starts with `=` is a formula of N, the size in the id. A table in place of a value holds one value per
task (`Swimmer`, or `Ant-v4` for one version), and `other` for the rest. In a source that names algorithms, its explorers
are for these algorithms only. `product` and `sum` are the entries of combinations such as `e3b*noveld`.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from typing import Any

from critex.algorithms import algorithm_module
from critex.envs import FAMILIES
from critex.errors import UserError, unknown
from critex.explorers import explorer_class, split_combination

Table = dict[str, Any]


@dataclass
class Settings:
    """The settings of a source for one algorithm with one explorer on one environment."""

    options: Table = field(default_factory=dict)
    """Options of the algorithm, whatever the explorer."""
    exploration: Table | None = None
    """Options that belong to the explorer: α, where the bonus goes, and `bonus`; None if the source has none."""


def default_config(
    name: str,
    explorer: str = "none",
    preset: str | None = None,
    env: str | None = None,
    device: str | None = None,
) -> Any:
    """The options of an algorithm with an explorer: default < family of `env` < preset.

    A preset named after a family, such as `minigrid`, changes nothing on its ids, where it is the default, and is
    refused elsewhere. Some defaults depend on the `device`: IMPALA's network is smaller on a CPU.
    """
    config = algorithm_module(name).Config
    found = settings(name, explorer, preset, env or config.env)
    exploration = dict(found.exploration or {})
    bonus = explorer_class(explorer).Config(**exploration.pop("bonus", {}))
    given = {key: value for key, value in (("env", env), ("device", device)) if value}
    chosen = given | found.options | exploration
    return config(explorer=explorer, preset=preset, bonus=bonus, **chosen)


def settings(algorithm: str, explorer: str, preset: str | None, env: str) -> Settings:
    """The settings of all sources that apply, the preset last."""
    family = next((name for name in families() if _match(_source(name), env)), None)
    if preset in families() and preset != family:
        raise UserError(f"preset {preset} is for the environments of its family; {env} is not one of them")
    if preset is not None and preset not in (*families(), *presets()):
        raise unknown("preset", preset, [*presets(), *families()])
    found = Settings()
    for source in dict.fromkeys(name for name in (family, preset) if name):
        own = _read(source, algorithm, explorer, env)
        found.options |= own.options
        found.exploration = found.exploration if own.exploration is None else own.exploration
    return found


def preset_options(config: type[Any], preset: str) -> Table:
    """The preset's values for the options `config` of CAE or CAE+, independent of algorithm and environment.

    The sizes of networks are left out: they suit a source's own φ.
    """
    if preset not in presets():
        raise unknown("preset", preset, presets())
    options = _read(preset, "", "cae_plus", "").exploration or {}
    known = {option.name for option in fields(config)} - {"u_dim", "hidden"}
    return {name: value for name, value in options["bonus"].items() if name in known}


@cache
def families() -> tuple[str, ...]:
    """Sources whose settings are the defaults on their ids."""
    return tuple(name for name in _names() if _source(name).keys() & {"family", "ids"})


@cache
def presets() -> tuple[str, ...]:
    """Sources that apply only on request (`--preset`)."""
    return tuple(name for name in _names() if name not in families())


@cache
def _names() -> list[str]:
    return sorted(
        file.name.removesuffix(".toml")
        for file in files("critex.presets").iterdir()
        if file.name.endswith(".toml")
    )


@cache
def _source(name: str) -> Table:
    return tomllib.loads((files("critex.presets") / f"{name}.toml").read_text("utf-8"))


def _read(source: str, algorithm: str, explorer: str, env: str) -> Settings:
    """The settings of one source: those of the source that it extends, then its own sections in order."""
    table = _source(source)
    found = Settings()
    if extends := table.get("extends"):
        found = _read(extends, algorithm, explorer, env)
    for section in (table, *table.get("section", ())):
        if match := _match(section, env):
            if section.get("tasks") and algorithm in section.get("algorithm", {}) and explorer != "none":
                _require_task(source, section["tasks"], env)
            _add(found, section, algorithm, explorer, env, match.groupdict())
    if parts := split_combination(explorer):
        _join_parts(found, [_read(source, algorithm, part, env).exploration for part in parts[1:]], parts)
    return found


def _match(section: Table, env: str) -> re.Match[str] | None:
    """The match of a section's ids with an id, None if it does not apply; its groups are the N of formulas."""
    pattern = section.get("ids") or (FAMILIES[section["family"]].pattern if "family" in section else ".*")
    return re.fullmatch(pattern, env.partition("?")[0])


def _require_task(source: str, tasks: list[str], env: str) -> None:
    if env.partition("?")[0] not in tasks:
        raise UserError(
            f"preset {source} has no α for {env}, only for {', '.join(tasks)}; leave the preset out and set --alpha"
        )


def _add(
    found: Settings, section: Table, algorithm: str, explorer: str, env: str, sizes: dict[str, str]
) -> None:
    """Add the settings of a section to those found so far."""
    symbol = (split_combination(explorer) or [""])[0]
    entry = {"*": "product", "+": "sum"}.get(symbol, explorer)
    algorithms = _entries(section.get("algorithm", {}), algorithm)
    explorers = (
        _entries(section.get("explorer", {}), entry) if algorithms or "algorithm" not in section else []
    )
    for table in algorithms:
        found.options |= _values({k: v for k, v in table.items() if k != "explorer"}, env, sizes)
        explorers += _entries(table.get("explorer", {}), entry)
    for table in explorers:
        found.exploration = found.exploration or {"bonus": {}}
        bonus = found.exploration["bonus"] | _values(table.get("bonus", {}), env, sizes)
        found.exploration |= _values({k: v for k, v in table.items() if k != "bonus"}, env, sizes)
        found.exploration["bonus"] = bonus


def _entries(table: Table, name: str) -> list[Table]:
    """The entries under a key that contains the name, or `any`."""
    return [entry for key, entry in table.items() if name in key.split() or key == "any"]


def _values(table: Table, env: str, sizes: dict[str, str]) -> Table:
    """Options in the form of the configs: formulas evaluated, tables of tasks looked up, lists as tuples."""
    plain, _, options = env.partition("?")
    task = plain.rpartition("-")[0]
    values = {}
    for name, value in table.items():
        if isinstance(value, dict):
            value = next((value[key] for key in (plain, task, "other") if key in value), None)
        if isinstance(value, str) and value.startswith("="):
            value = eval(value[1:], {"__builtins__": {}}, {key: int(size) for key, size in sizes.items()})
        if value is None or (name == "env" and options):  # keep an id that has its own options
            continue
        values[name] = tuple(value) if isinstance(value, list) else value
    return values


def _join_parts(found: Settings, settings_of_parts: list[Table | None], parts: tuple[str, str, str]) -> None:
    """Add the options of a combination's parts. If a part is scaled in the learner, the combination is scaled instead."""
    if found.exploration is None:
        return
    options = found.exploration["bonus"]
    for which, name, part in zip(("first", "second"), parts[1:], settings_of_parts, strict=True):
        bonus = dict((part or {}).get("bonus", {}))
        if bonus.get("scaling") == "batch":
            options |= {"scaling": "batch", "count_rows": bonus.get("count_rows", False)}
            bonus["scaling"] = "none"
        options[which] = explorer_class(name).Config(**bonus)
