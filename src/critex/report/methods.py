"""Runs that differ in nothing but their seed are one method; its name says what sets it apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from critex.report.runs import RunData
from critex.report.stats import Summary, final_score, summarise
from critex.report.words import ABSENT

NOT_THE_METHOD = frozenset(
    ("seed", "out", "progress", "tensorboard", "wandb", "checkpoint_every", "checkpoint_minutes")
)
"""Options that change the numbers of a method by chance only, or not at all."""


@dataclass(frozen=True)
class Method:
    """The runs of one method on one environment, by seed."""

    env: str
    label: str
    config: dict[str, Any]
    runs: tuple[RunData, ...]

    @property
    def seeds(self) -> list[int]:
        """The seeds that were run."""
        return [run.seed for run in self.runs]


@dataclass(frozen=True)
class FinalScore:
    """One row of the final-score table."""

    env: str
    label: str
    seeds: list[int]
    training: Summary
    """Per seed the mean extrinsic return of the last 100 training episodes."""
    evaluation: Summary
    """Per seed the last evaluation, greedy and without any bonus; n = 0 where none was made."""


def final_score_of(method: Method) -> FinalScore:
    """The scores of a method, summarised over its seeds."""
    training = [final_score(run.returns) for run in method.runs if run.returns.size]
    evaluations = [run.series["evaluation"][1] for run in method.runs]
    last = [float(values[-1]) for values in evaluations if values.size]
    return FinalScore(method.env, method.label, method.seeds, summarise(training), summarise(last))


def group(runs: Sequence[RunData], problems: list[str]) -> list[Method]:
    """The methods in these runs, environment by environment, those without explorer first."""
    groups: dict[tuple[str, str], dict[int, RunData]] = {}
    for run in runs:
        options = sorted((name, value) for name, value in _config(run).items() if value is not None)
        key = (run.env, repr(options))
        first = groups.setdefault(key, {}).setdefault(run.seed, run)
        if first is not run:
            problems.append(f"{run.path} repeats seed {run.seed} of {first.path}; left out")
    envs = list(dict.fromkeys(env for env, _ in groups))
    methods: list[Method] = []
    for env in envs:
        members = [by_seed for (e, _), by_seed in groups.items() if e == env]
        members.sort(key=lambda by_seed: _explorer(next(iter(by_seed.values()))) != "none")  # baselines first
        heads = [next(iter(by_seed.values())) for by_seed in members]
        for label, head, by_seed in zip(_labels(heads), heads, members, strict=True):
            methods.append(Method(env, label, _config(head), tuple(by_seed[s] for s in sorted(by_seed))))
    return methods


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the options that are not the same in all configs.

    An option that is missing, as in a run older than the option, is the same as one that is None.
    """
    names = dict.fromkeys(name for config in configs for name in config)
    return [n for n in names if any(_get(c, n) != _get(configs[0], n) for c in configs)]


def _get(config: Mapping[str, Any], name: str) -> tuple[type, Any]:
    value = config.get(name)
    return type(value), value  # 1, 1.0 and True are different things to write into a config


def _explorer(run: RunData) -> str:
    return str(run.config.get("explorer", "none"))


def shown(value: Any) -> str:
    """A value of a config as a person writes it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _config(run: RunData) -> dict[str, Any]:
    return {name: value for name, value in run.config.items() if name not in NOT_THE_METHOD}


def _labels(runs: Sequence[RunData]) -> list[str]:
    """`dqn`, `dqn+cae`; where two have the same name, `dqn+cae (thompson)` or `dqn+cae (alpha=0.3)`."""

    def base(run: RunData) -> str:
        explorer = _explorer(run)
        return run.algorithm if explorer == "none" else f"{run.algorithm}+{explorer}"

    labels = []
    for run in runs:
        names = differing([_config(other) for other in runs if base(other) == base(run)])
        traits = [_trait(name, run.config.get(name, ABSENT)) for name in names]
        labels.append(base(run) + (f" ({', '.join(traits)})" if traits else ""))
    return labels


def _trait(name: str, value: Any) -> str:
    return value if isinstance(value, str) and value != ABSENT else f"{name.split('.')[-1]}={shown(value)}"
