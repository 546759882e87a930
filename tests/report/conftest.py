"""Run directories with invented numbers, written by the same code that writes real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critex.run import Run, RunConfig

MakeRun = Callable[..., Path]


@dataclass
class Options:
    strategy: str = "ucb"
    ridge: float = 1.0
    phi_norm: float | None = None


@dataclass(kw_only=True)
class Config(RunConfig):
    env: str = "DeepSea-8-v0"
    explorer: str = "none"
    alpha: float = 0.1
    steps: int = 10_000
    bonus: Options | None = None
    progress: bool = False
    tensorboard: bool = False
    hidden: tuple[int, ...] = field(default=(120, 84))


@dataclass
class Episode:
    return_: float
    length: int = 10
    env: int = 0
    ago: int = 0
    measures: dict[str, float] = field(default_factory=dict)


def write_run(
    path: Path,
    returns: Iterable[float],
    *,
    bonus_means: Iterable[float] = (),
    evaluations: Iterable[float] = (),
    visits: Any = None,
    finish: bool = True,
    algorithm: str = "dqn",
    **options: Any,
) -> Path:
    """A run with an episode of ten steps for each return."""
    returns, bonus_means, evaluations = list(returns), list(bonus_means), list(evaluations)
    with Run.create(algorithm, Config(out=str(path), log_every=10, **options)) as run:
        run.attach()
        for step in run.steps(10 * len(returns), 10):
            index = step // 10
            run.episodes([Episode(returns[index])])
            if index < len(bonus_means):
                run.log({"bonus": bonus_means[index], "bonus_raw": bonus_means[index] ** 2, "loss": 1.0})
            if index < len(evaluations):
                value = evaluations[index]
                run._log.write("eval", run.step, {"return": value, "returns": [value], "lengths": [10]})
        if visits is not None:
            (run.path / "visits.json").write_text(json.dumps(visits))
        if finish:
            run.finish({"parameters": 1000, "parameters_added": 0, "bytes": 4096, "bonus_us_per_step": 12.5})
    return path


def of_method(name: str) -> dict[str, str]:
    """The options of `write_run` for `sac` or `sac+cae`."""
    algorithm, _, explorer = name.partition("+")
    return {"algorithm": algorithm, "explorer": explorer or "none"}


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """make_run("a", [0, 1], explorer="cae", …) → the path of that run."""
    return lambda name, returns, **options: write_run(tmp_path / name, returns, **options)


@pytest.fixture(scope="session")
def demo_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three methods with three seeds on a DeepSea of 8 × 8: one that never gets there and two that do."""
    return write_demo(tmp_path_factory.mktemp("demo"))


def write_demo(root: Path) -> list[Path]:
    methods: dict[str, dict[str, Any]] = {
        "dqn": {},
        "ucb": {"explorer": "cae", "bonus": Options()},
        "thompson": {"explorer": "cae", "bonus": Options(strategy="thompson")},
    }
    episodes, size, paths = 240, 8, []
    for m, (name, options) in enumerate(methods.items()):
        for seed in range(3):
            rng = np.random.default_rng([m, seed])
            depth = np.minimum(1, np.arange(episodes) / (np.inf if m == 0 else 60 * m + 40 * seed + 40))
            counts, snapshots = np.zeros((size, size), dtype=int), []
            for e in range(episodes):
                column = 0
                for row in range(size):
                    counts[row, column] += 1
                    column = max(column + (1 if rng.random() < 0.35 + 0.6 * depth[e] else -1), 0)
                if e % 20 == 19:
                    snapshots.append({"step": 10 * (e + 1), "counts": counts.tolist()})
            run = write_run(
                root / f"{name}-{seed}",
                (depth >= 1) * 0.99 - 0.01 * rng.random(episodes),
                bonus_means=[] if m == 0 else 1.5 / m / np.sqrt(1 + np.arange(episodes)),
                evaluations=(depth >= 1) * 0.99,
                visits={"shape": [size, size], "snapshots": snapshots},
                seed=seed,
                **options,
            )
            paths.append(run)
    return paths
