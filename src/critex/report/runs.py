"""Run directories as data; what is broken or foreign is named, and the rest still read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from critex.errors import UserError
from critex.report.stats import Floats
from critex.report.visits import Visits, read_visits
from critex.run import read_config, read_metrics
from critex.run.metrics import METRICS
from critex.run.record import CARD, CONFIG

Series = tuple[Floats, Floats]
"""(steps [E], values [E])."""


@dataclass(frozen=True)
class RunData:
    """What a report needs of one run."""

    path: Path
    algorithm: str
    config: dict[str, Any]
    """Flat, with dotted names."""
    env: str
    seed: int
    series: dict[str, Series]
    """`return`, `evaluation`, `bonus` and `bonus_raw`, each possibly empty."""
    card: dict[str, Any]
    """Empty for a run that is not finished."""
    visits: Visits | None

    @property
    def returns(self) -> Floats:
        """Extrinsic returns of the training episodes in order, [E]."""
        return self.series["return"][1]

    @property
    def finished(self) -> bool:
        """Whether the run came to its end, where it wrote its card."""
        return bool(self.card)

    @property
    def steps(self) -> int:
        """Environment steps taken, as far as the files tell."""
        last = max(steps[-1] for steps, _ in self.series.values() if steps.size)
        return int(self.card.get("env_steps", last))


def load_runs(paths: Iterable[Path], problems: list[str]) -> list[RunData]:
    """Every usable run; `problems` receives one line for each thing that is wrong.

    A directory that is no run itself but holds runs stands for those.
    """
    runs: dict[Path, RunData] = {}
    for path in expand(paths):
        if path.resolve() in runs:
            continue
        try:
            runs[path.resolve()] = load_run(path, problems)
        except UserError as error:
            problems.append(f"{error}; left out")
    if not runs:
        hint = "give run directories, such as those that `critex train … --out runs/a` makes"
        raise UserError("; ".join(["no usable run to report on", *problems, hint]))
    return list(runs.values())


def expand(paths: Iterable[Path]) -> list[Path]:
    """The run directories that these paths mean."""
    found: list[Path] = []
    for path in paths:
        inside = [] if (path / CONFIG).exists() else sorted(p.parent for p in path.glob(f"*/{CONFIG}"))
        found += inside or [path]
    return found


def load_run(path: Path, problems: list[str]) -> RunData:
    """One run; a `UserError` where it cannot be used, a line in `problems` for what is wrong with the rest."""
    algorithm, nested = read_config(path)
    config: dict[str, Any] = {"algorithm": algorithm}
    config |= {name.removeprefix("run."): value for name, value in flat(nested).items()}
    env, seed = config.get("env"), config.get("seed")
    if not isinstance(algorithm, str) or not isinstance(env, str) or type(seed) is not int:
        raise UserError(f"{path / CONFIG} names no algorithm, env and seed: it is not a run of critex")
    broken: list[str] = []
    lines = read_metrics(path, broken)
    if broken:
        more = f" (and {len(broken) - 1} more such lines)" if len(broken) > 1 else ""
        problems.append(f"{broken[0]}{more}; read without")
    series = {
        "return": column(lines, "episode", "return"),
        "evaluation": column(lines, "eval", "return"),
        "bonus": column(lines, "train", "bonus"),
        "bonus_raw": column(lines, "train", "bonus_raw"),
    }
    if not series["return"][0].size and not series["evaluation"][0].size:
        raise UserError(f"{path / METRICS} holds no finished episode")
    card = read_card(path, problems)
    if not (path / CARD).exists():
        last = max(line["step"] for line in lines)
        problems.append(f"{path} is not finished: its numbers are those up to step {last:,}")
    return RunData(path, algorithm, config, env, seed, series, card, read_visits(path, problems))


def flat(table: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted names."""
    items: dict[str, Any] = {}
    for key, value in table.items():
        items |= flat(value, f"{where}{key}.") if isinstance(value, dict) else {where + key: value}
    return items


def column(lines: Sequence[dict[str, Any]], kind: str, name: str) -> Series:
    """Steps and values of one number in the lines of one kind."""
    rows = [(line["step"], line[name]) for line in lines if line["kind"] == kind and name in line]
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def read_card(path: Path, problems: list[str]) -> dict[str, Any]:
    """card.json with its totals beside the rest; empty where there is none or it is broken."""
    try:
        card = json.loads((path / CARD).read_text(encoding="utf-8"))
        if not isinstance(card, dict):
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        problems.append(f"{path / CARD} is broken: {error}; read without")
        return {}
    totals = card.pop("totals", {})
    return {**card, **(totals if isinstance(totals, dict) else {})}
