"""Which runs are one method, and what it is called."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from critex.results.methods import MethodRuns, differing, final_score_of, group
from critex.results.runs import RunData

EMPTY = (np.empty(0), np.empty(0))


NUMBERS = count()


def run(seed: int = 0, returns: Any = (), evaluations: Any = (), **config: Any) -> RunData:
    config = {"algorithm": "dqn", "env": "E-v0", "seed": seed, "explorer": "none", **config}
    series = dict.fromkeys(("bonus", "bonus_raw"), EMPTY)
    for key, values in (("return", returns), ("evaluation", evaluations)):
        series[key] = (np.arange(1.0, len(values) + 1), np.array(values, dtype=float))
    path = Path(f"runs/{next(NUMBERS)}")
    return RunData(path, config["algorithm"], config, config["env"], seed, series, {}, None)


def labels(*runs: RunData) -> list[tuple[str, list[int]]]:
    return [(method.label, method.seeds) for method in group(runs, [])]


def test_seeds_make_one_method() -> None:
    assert labels(run(2), run(0, out="x", progress=False), run(1, checkpoint_every=5)) == [("dqn", [0, 1, 2])]
    assert labels(run(0, threads=1), run(1, threads=2, device="cuda", env_workers=2, log_every=9)) == [
        ("dqn", [0, 1])
    ]


def test_the_name_is_algorithm_and_explorer() -> None:
    assert labels(run(), run(explorer="cae")) == [("dqn", [0]), ("dqn+cae", [0])]


def test_what_sets_methods_of_one_name_apart_is_in_the_name() -> None:
    cae = {"explorer": "cae", "bonus.ridge": 1.0}
    assert labels(
        run(gamma=0.9),  # other options of other names do not matter
        run(**cae, **{"bonus.strategy": "ucb"}),
        run(**cae, **{"bonus.strategy": "thompson"}),
        run(1, **cae, **{"bonus.strategy": "thompson"}),
    ) == [("dqn", [0]), ("dqn+cae (ucb)", [0]), ("dqn+cae (thompson)", [0, 1])]


def test_numbers_flags_and_none_are_named() -> None:
    assert labels(
        run(alpha=0.1, double_q=True, **{"bonus.phi_norm": None}),
        run(alpha=0.3, double_q=True, **{"bonus.phi_norm": 1.0}),
    ) == [("dqn (alpha=0.1, phi_norm=none)", [0]), ("dqn (alpha=0.3, phi_norm=1.0)", [0])]


def test_an_option_that_only_one_version_knows() -> None:
    assert labels(run(), run(new=3)) == [("dqn (new=—)", [0]), ("dqn (new=3)", [0])]
    assert labels(run(0), run(1, new=None)) == [("dqn", [0, 1])]


def test_baselines_come_first() -> None:
    assert [label for label, _ in labels(run(explorer="cae"), run())] == ["dqn", "dqn+cae"]


def test_environments_stay_apart() -> None:
    methods = group([run(env="A"), run(env="B"), run(1, env="A")], [])
    assert [(m.env, m.label, m.seeds) for m in methods] == [("A", "dqn", [0, 1]), ("B", "dqn", [0])]


def test_a_repeated_seed_is_no_second_seed() -> None:
    problems: list[str] = []
    first, second = run(4), run(4)
    (method,) = group([first, second], problems)
    assert method.runs == (first,)
    assert problems == [f"{second.path} repeats seed 4 of {first.path}; left out"]
    finished = replace(second, card={"env_steps": 10.0})
    for runs in ([first, finished], [finished, first]):
        problems.clear()
        (method,) = group(runs, problems)
        assert method.runs == (finished,), "whatever the order"
        assert problems == [f"{first.path} repeats seed 4 of {finished.path}; left out"]


def test_one_true_and_one_point_zero_differ() -> None:
    assert differing([{"a": 1, "b": 2, "c": True}, {"a": 1.0, "b": 2, "c": 1}]) == ["a", "c"]


def test_final_score_of_a_method() -> None:
    a, b = run(0, [0.0] * 50 + [1.0] * 100, [5, 7]), run(1, [3.0])
    score = final_score_of(MethodRuns("E-v0", "dqn", {}, (a, b)))
    assert (score.training.mean, score.training.n) == (2, 2)  # 1 and 3
    assert (score.evaluation.mean, score.evaluation.n) == (7, 1)  # the last one, where there is one
