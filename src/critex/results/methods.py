"""Runs that differ only in their seed form one method, labelled by its differences from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from critex.results.formatting import ABSENT
from critex.results.runs import RunData, measure_of, series_name
from critex.results.stats import Summary, final_score, summarise

NOT_THE_METHOD = frozenset(
    "seed out device threads env_workers log_every progress tensorboard wandb checkpoint_every "
    "checkpoint_minutes".split()
)
"""Options that do not change the method: at most they change its random numbers or its rounding."""


@dataclass(frozen=True)
class MethodRuns:
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
    """Over seeds: the mean of the last 100 training episodes."""
    evaluation: Summary
    """Over seeds: the last evaluation, without bonus; n = 0 if there was none."""
    measure: str = "return"
    """The averaged quantity: the extrinsic return, or the measure of an environment without reward."""
    stops: bool = False
    """Whether runs stop at their goal, so that most of their last episodes are those before it."""


def score_columns(scores: Sequence[FinalScore]) -> dict[str, str]:
    """The scores to show, first the one that counts: field of `FinalScore` → heading."""
    measures = " or ".join(dict.fromkeys(score.measure for score in scores)) or "return"
    columns = {"training": f"{measures}, last 100 episodes", "evaluation": "last evaluation"}
    if not any(score.evaluation.n for score in scores):
        del columns["evaluation"]
    first = "evaluation" if any(score.stops for score in scores) else "training"
    return dict(sorted(columns.items(), key=lambda column: column[0] != first))


def final_score_of(method: MethodRuns, measure: str | None = None) -> FinalScore:
    """The scores of a method, summarised over its seeds; by default of what `measure_of` chooses for its runs."""
    measure = measure or measure_of(method.runs)
    episodes, evaluations = (
        [values for run in method.runs if (values := run.values(series_name(measure, evaluation))).size]
        for evaluation in (False, True)
    )
    training = summarise([final_score(values) for values in episodes])
    last = summarise([float(values[-1]) for values in evaluations])
    stops = any(run.stops for run in method.runs)
    return FinalScore(method.env, method.label, method.seeds, training, last, measure, stops)


def group(runs: Sequence[RunData], problems: list[str]) -> list[MethodRuns]:
    """Group runs into methods, environment by environment; methods without an explorer come first."""
    groups: dict[tuple[str, str], dict[int, RunData]] = {}
    for run in runs:
        options = sorted((name, value) for name, value in method_options(run).items() if value is not None)
        key = (run.env, repr(options))
        keep(run, groups.setdefault(key, {}), problems)
    envs = list(dict.fromkeys(env for env, _ in groups))
    methods: list[MethodRuns] = []
    for env in envs:
        members = [by_seed for (e, _), by_seed in groups.items() if e == env]
        members.sort(key=lambda by_seed: _explorer(next(iter(by_seed.values()))) != "none")  # baselines first
        heads = [next(iter(by_seed.values())) for by_seed in members]
        for label, head, by_seed in zip(_labels(heads), heads, members, strict=True):
            methods.append(
                MethodRuns(env, label, method_options(head), tuple(by_seed[s] for s in sorted(by_seed)))
            )
    return methods


def keep(run: RunData, by_seed: dict[int, RunData], problems: list[str]) -> None:
    """Add a run; of two with the same seed the finished one is kept, or else the first."""
    kept = by_seed.setdefault(run.seed, run)
    if kept is run:
        return
    dropped = run
    if run.finished and not kept.finished:
        by_seed[run.seed], kept, dropped = run, run, kept
    problems.append(f"{dropped.path} repeats seed {run.seed} of {kept.path}; left out")


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the options that differ between configs.

    A missing option, as in a run older than the option, counts as None.
    """
    names = dict.fromkeys(name for config in configs for name in config)
    return [n for n in names if any(_get(c, n) != _get(configs[0], n) for c in configs)]


def _get(config: Mapping[str, Any], name: str) -> tuple[type, Any]:
    value = config.get(name)
    return type(value), value  # 1, 1.0 and True are different values in a config


def _explorer(run: RunData) -> str:
    return str(run.config.get("explorer", "none"))


def shown(value: Any) -> str:
    """A config value as a person would write it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def method_options(run: RunData) -> dict[str, Any]:
    """The options of a run that define its method."""
    return {name: value for name, value in run.config.items() if name not in NOT_THE_METHOD}


def method_name(run: RunData) -> str:
    """`dqn`, `dqn+cae`."""
    explorer = _explorer(run)
    return run.algorithm if explorer == "none" else f"{run.algorithm}+{explorer}"


def _labels(runs: Sequence[RunData]) -> list[str]:
    """The names; if several share one, `dqn+cae (thompson)` or `dqn+cae (alpha=0.3)`."""
    labels = []
    for run in runs:
        same = [method_options(other) for other in runs if method_name(other) == method_name(run)]
        traits = [_trait(name, run.config.get(name, ABSENT)) for name in differing(same)]
        labels.append(method_name(run) + (f" ({', '.join(traits)})" if traits else ""))
    return labels


def _trait(name: str, value: Any) -> str:
    return value if isinstance(value, str) and value != ABSENT else f"{name.split('.')[-1]}={shown(value)}"
