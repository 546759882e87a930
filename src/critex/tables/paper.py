"""The numbers printed in the paper, from paper.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from critex.errors import unknown
from critex.results.cells import Cell


@dataclass(frozen=True)
class PaperTable:
    """Scores that the paper reports (Tables 3 to 6)."""

    table: int
    title: str
    seeds: tuple[int, ...]
    scores: dict[Cell, tuple[float, float]]
    """(mean, spread over the seeds)."""
    rpi: dict[Cell, float]
    """Relative performance improvement, in percent, as printed."""
    rpi_mean: dict[str, float]
    """Its mean over tasks for each method; empty if the paper gives none."""
    hours: dict[str, float]
    """Wall-clock hours of one task for each method; empty if the paper gives none."""


@dataclass(frozen=True)
class PaperParameters:
    """The parameters that each explorer adds to IMPALA's networks on MiniHack (Table 2)."""

    base: int
    added: dict[str, tuple[int, ...]]
    """Explorer → parameters of each network it adds."""
    percent: dict[str, float]
    """The sum as a percentage of `base`, as printed."""


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads((files("critex.tables") / "paper.toml").read_text("utf-8"))


@cache
def paper_table(name: str) -> PaperTable:
    """One of mujoco-v4, mujoco-dsac, minihack, habitat."""
    tables = {key: value for key, value in _data().items() if "tasks" in value}
    if name not in tables:
        raise unknown("table of the paper", name, tables)
    data, rows = tables[name], tables[name]["tasks"].items()
    return PaperTable(
        data["table"],
        data["title"],
        tuple(data["seeds"]),
        scores={
            (task, method): tuple(v) for task, row in rows for method, v in row.items() if method != "rpi"
        },
        rpi={(task, method): value for task, row in rows for method, value in row["rpi"].items()},
        rpi_mean=data.get("rpi_mean", {}),
        hours=data.get("hours", {}),
    )


@cache
def paper_parameters() -> PaperParameters:
    """Table 2."""
    data = _data()["parameters"]
    added = {explorer: tuple(counts) for explorer, counts in data["added"].items()}
    return PaperParameters(data["base"], added, data["percent"])
