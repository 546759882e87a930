"""The method is the marked lines, and nothing but them: delete them and plain training is left."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from critex.algorithms import ALGORITHMS, algorithm_module
from critex.explorers import EllipticalConfig
from tests.algorithms.conftest import metrics

MARK = re.compile(r"# CAE\+?(\s|$)")
SMALL = {
    "dqn": {"env": "CartPole-v1", "steps": 1500, "learning_starts": 200, "log_every": 100, "num_envs": 2},
    "ppo": {
        "env": "Pendulum-v1",
        "steps": 900,
        "rollout": 75,
        "minibatches": 5,
        "epochs": 2,
        "log_every": 100,
        "num_envs": 2,
        "hidden": (16,),
    },
    "impala": {
        "env": "CartPole-v1",
        "steps": 960,
        "unroll": 20,
        "log_every": 100,
        "num_envs": 2,
        "hidden": (16,),
    },
    "ppo_recurrent": {
        "env": "CartPole-v1",
        "steps": 900,
        "rollout": 75,
        "epochs": 2,
        "log_every": 100,
        "num_envs": 2,
        "hidden": (16,),
        "core_width": 16,
    },
    "sac": {
        "env": "Pendulum-v1",
        "steps": 420,
        "learning_starts": 200,
        "log_every": 50,
        "num_envs": 2,
        "hidden": (16,),
    },
    "td3": {
        "env": "Pendulum-v1",
        "steps": 420,
        "learning_starts": 200,
        "log_every": 50,
        "num_envs": 2,
        "hidden": (16,),
    },
    "dsac": {
        "env": "Pendulum-v1",
        "steps": 440,
        "learning_starts": 200,
        "log_every": 40,
        "num_envs": 2,
        "hidden": (16,),
    },
}


def source(name: str) -> str:
    path = algorithm_module(name).__file__
    assert path
    return Path(path).read_text()


def without_method(name: str) -> ModuleType:
    """The algorithm's module with every marked line deleted."""
    module = ModuleType(f"plain_{name}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    kept = "\n".join(line for line in source(name).splitlines() if not MARK.search(line))
    exec(compile(kept, module.__name__, "exec"), module.__dict__)
    return module


COUNTS = {
    "dqn": (15, 2),
    "dsac": (11, 2),
    "impala": (11, 8),
    "ppo": (10, 6),
    "ppo_recurrent": (10, 6),
    "sac": (11, 2),
    "td3": (11, 2),
}
"""Lines marked `# CAE` and `# CAE+` of each file."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_number_of_marked_lines(name: str) -> None:
    marks = [match[0].strip() for line in source(name).splitlines() if (match := MARK.search(line))]
    assert (marks.count("# CAE"), marks.count("# CAE+")) == COUNTS[name]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_without_them_it_trains_as_with_none(name: str, train: Callable[..., Path]) -> None:
    plain = train(name, "plain", module=without_method(name), **SMALL[name])
    none = train(name, "none", **SMALL[name])
    assert metrics(plain) == metrics(none)
    assert any(line["kind"] == "train" for line in metrics(none))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_alpha_zero_changes_no_learning(name: str, train: Callable[..., Path]) -> None:
    """An explorer that only watches leaves the agent's course alone: it draws from no generator of the agent."""
    none = train(name, "none", **SMALL[name])
    watched = train(
        name, "cae", explorer="cae", alpha=0.0, bonus=EllipticalConfig(strategy="thompson"), **SMALL[name]
    )
    episodes = [[line for line in metrics(run) if line["kind"] == "episode"] for run in (none, watched)]
    assert episodes[0] == episodes[1] != []
