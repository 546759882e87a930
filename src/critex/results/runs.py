"""Load run directories. Broken files and foreign directories are reported; everything else is still read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from critex.errors import UserError, printable
from critex.results.stats import Floats
from critex.results.visits import VisitHistory, read_visits
from critex.run import read_config, read_metrics
from critex.run.config import flat
from critex.run.metrics import METRICS
from critex.run.record import CARD, CONFIG

Series = tuple[Floats, Floats]
"""(steps [E], values [E])."""

SERIES = {
    "return": ("episode", "return"),
    "evaluation": ("eval", "return"),
    "alpha": ("train", "alpha"),
    "bonus": ("train", "bonus"),
    "bonus_raw": ("train", "bonus_raw"),
    "effective_dimension": ("train", "effective_dimension"),
    "phi_rank": ("train", "phi_rank"),
    "phi_norm": ("train", "phi_norm"),
    "bonus_early": ("train", "bonus_early"),
    "bonus_action": ("train", "bonus_action"),
}
"""The curves of every run: name → (kind of line, field) in metrics.jsonl. Measures of an environment add theirs."""

NOT_MEASURES = frozenset(("step", "time", "return", "length", "env", "unfinished"))
"""Numbers in lines of episodes and evaluations that the environment did not measure."""


def series_name(measure: str, evaluation: bool = False) -> str:
    """The curve of `return`, or of another measure such as `coverage`, in training or in evaluations."""
    return measure if not evaluation else "evaluation" if measure == "return" else f"evaluation_{measure}"


@dataclass(frozen=True)
class RunData:
    """One run as its files describe it."""

    path: Path
    algorithm: str
    config: dict[str, Any]
    """Flat, with dotted names."""
    env: str
    seed: int
    series: dict[str, Series]
    """One entry for each name in `SERIES`, possibly empty, and two for each measure of the environment."""
    card: dict[str, float]
    """The numbers of card.json; empty for a run that is not finished."""
    visits: VisitHistory | None

    def values(self, name: str) -> Floats:
        """The values of a curve, [E]; empty if the run has no such curve."""
        return self.series[name][1] if name in self.series else np.empty(0)

    @property
    def measures(self) -> tuple[str, ...]:
        """Measures of the environment besides the return, such as `coverage`."""
        return tuple(
            name
            for name in self.series
            if name != "return" and series_name(name, evaluation=True) in self.series
        )

    @property
    def finished(self) -> bool:
        """Whether the run finished, and so wrote its card."""
        return bool(self.card)

    @property
    def steps(self) -> int:
        """Environment steps taken, according to the files."""
        last = max(steps.max() for steps, _ in self.series.values() if steps.size)
        return int(self.card.get("env_steps", last))

    @property
    def stops(self) -> bool:
        """Whether it was to stop at a goal."""
        return self.config.get("stop_return") is not None

    @property
    def stopped(self) -> bool:
        """Whether it reached that goal, and so ended, before the last of its steps."""
        steps = self.config.get("steps")
        return self.finished and self.stops and isinstance(steps, int) and self.steps < steps


def load_runs(paths: Iterable[Path], problems: list[str]) -> list[RunData]:
    """Load every usable run; append one line to `problems` for each defect.

    A directory that contains runs stands for those runs.
    """
    runs: dict[str, RunData] = {}
    for path in expand(paths):
        real = os.path.realpath(path)
        if real in runs:
            continue
        try:
            runs[real] = load_run(path, problems)
        except UserError as error:
            problems.append(f"{error}; left out")
    if not runs:
        hint = "give run directories, such as those that `critex train … --out runs/a` makes"
        why = [problem.removesuffix("; left out") for problem in problems]
        raise UserError("; ".join(["no usable run to report on", *why, hint]))
    return list(runs.values())


def expand(paths: Iterable[Path]) -> list[Path]:
    """The run directories behind these paths."""
    return [run for path in paths for run in sorted(runs_below(path)) or [path]]


def runs_below(directory: Path) -> Iterator[Path]:
    """The run directories at any depth; runs are not searched for others."""
    seen = set()  # links may lead back
    for root, folders, files in os.walk(directory, followlinks=True):
        if CONFIG in files or (real := os.path.realpath(root)) in seen:
            folders.clear()
        else:
            seen.add(real)
        if CONFIG in files:
            yield Path(root)


def load_run(path: Path, problems: list[str]) -> RunData:
    """Load one run; a `UserError` if it cannot be used, a line in `problems` for each smaller defect."""
    try:
        return _load_run(path, problems)
    except RecursionError:
        raise UserError(f"{path} has a file that is nested too deeply to read") from None


def _load_run(path: Path, problems: list[str]) -> RunData:
    algorithm, nested = read_config(path)
    config = {"algorithm": algorithm, **flat(nested)}
    env, seed = config.get("env"), config.get("seed")
    if not isinstance(env, str) or type(seed) is not int:
        raise UserError(f"{path / CONFIG} names no algorithm, env and seed: it is not a run of critex")
    broken: list[str] = []
    lines = read_metrics(path, broken)
    series = {
        name: column(lines, kind, field) for name, (kind, field) in (SERIES | measured_series(lines)).items()
    }
    if broken:
        more = f" (and {len(broken) - 1} more such lines)" if len(broken) > 1 else ""
        problems.append(f"{broken[0]}{more}; read without")
    if not series["return"][0].size and not series["evaluation"][0].size:
        raise UserError(f"{path / METRICS} holds no finished episode")
    card = read_card(path, problems)
    run = RunData(path, printable(algorithm), config, printable(env), seed, series, card, None)
    if not (path / CARD).exists():
        problems.append(f"{path} is not finished: its numbers are those up to step {run.steps:,}")
    return replace(run, visits=read_visits(path, problems))


def measured_series(lines: Sequence[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """The curves of the environment's own measures, in the form of `SERIES`."""
    kinds = ("episode", "eval")
    entries = [entry for line in lines if line["kind"] in kinds for entry in line.items()]
    names = sorted({name for name, value in entries if type(value) in (int, float)} - NOT_MEASURES)
    return {series_name(name, kind == "eval"): (kind, name) for name in names for kind in kinds}


def measure_of(runs: Iterable[RunData]) -> str:
    """The score of runs in one environment: `return`, or its own measure if it never gives a reward."""
    runs = list(runs)
    rewarded = any(run.series[name][1].any() for run in runs for name in ("return", "evaluation"))
    measures = dict.fromkeys(name for run in runs for name in run.measures)
    return "return" if rewarded or not measures else next(iter(measures))


def column(lines: Sequence[dict[str, Any]], kind: str, name: str) -> Series:
    """Steps and values of one metric in the lines of one kind."""
    rows = [
        (line["step"], line[name])
        for line in lines
        if line["kind"] == kind and type(line.get(name)) in (int, float)
    ]
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def read_card(path: Path, problems: list[str]) -> dict[str, float]:
    """The numbers of card.json, its totals included; empty if there is no card or it is broken."""
    try:
        card = json.loads((path / CARD).read_text(encoding="utf-8"))
        if not isinstance(card, dict):
            raise ValueError("not a JSON object")
        totals = card.pop("totals", {})
        entries = {**card, **(totals if isinstance(totals, dict) else {})}
        numbers = {key: float(value) for key, value in entries.items() if type(value) in (int, float)}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, OverflowError) as error:
        problems.append(f"{path / CARD} is broken: {error}; read without")
        return {}
    return {key: value for key, value in numbers.items() if math.isfinite(value)}
