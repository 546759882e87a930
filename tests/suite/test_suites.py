"""Suites are data: their flags are ones that the command line takes, and the paper's suites are the paper's runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from critex.algorithms import ALGORITHMS, algorithm_module
from critex.cli.train import train_config
from critex.errors import UserError
from critex.explorers import EXPLORERS
from critex.presets import default_config
from critex.suite import SUITES, Method, Suite, Task, suite_named
from critex.tables import paper_table


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_every_method_and_task_is_a_command_that_the_command_line_takes(suite: Suite) -> None:
    jobs = suite.jobs(Path("runs"), budget=0.5, seeds=[7])
    assert len({job.out for job in jobs}) == len(jobs) > 0
    new = {part: job for job in reversed(jobs) for part in job.out.relative_to("runs").parts[:2]}
    for job in {job.out: job for job in new.values()}.values():
        config = train_config(job.train[0], list(job.train[1:]))
        assert isinstance(config, algorithm_module(job.train[0]).Config)
        assert (config.seed, config.steps, config.tensorboard) == (7, job.steps, False)
        task, method, seed = job.out.relative_to("runs").parts
        assert config.env.partition("?")[0] == task and seed == "seed-7"
        assert method.split("-")[0] == (
            job.train[0] if config.explorer == "none" else f"{job.train[0]}+{config.explorer}"
        )


@pytest.mark.parametrize("name", ["mujoco-v4", "mujoco-dsac"])
def test_the_tables_of_the_paper_are_covered_cell_by_cell(name: str) -> None:
    suite, table = SUITES[name], paper_table(SUITES[name].paper or "")
    cells = {(task.name, method.name) for task, method in suite.cells() if not method.variant}
    assert cells == table.scores.keys()
    assert suite.seeds == table.seeds
    for task, method in suite.cells():
        config = train_config(method.algorithm, list(suite.arguments(task, method)[1:]))
        default = default_config(method.algorithm, method.explorer, "paper", task.env)
        assert config.alpha == default.alpha and suite.steps(task, method) == default.steps
        assert config.env == default.env


def test_the_scaling_ablation_differs_in_the_scaling_alone() -> None:
    suite = SUITES["mujoco-scaling-ablation"]
    assert [task.name for task in suite.tasks] == ["Swimmer-v4", "Walker2d-v4"]
    _, scaled, unscaled = suite.methods
    one, other = (
        train_config("sac", list(suite.arguments(suite.tasks[0], m)[1:])) for m in (scaled, unscaled)
    )
    assert (one.bonus.scaling, other.bonus.scaling) == ("welford", "none")
    other.bonus = one.bonus
    assert one == other


def test_smoke_has_every_algorithm_with_every_explorer_once() -> None:
    pairs = [(method.algorithm, method.explorer) for _, method in SUITES["smoke"].cells()]
    continuous = ("dsac", "ppo", "sac", "td3")  # on Pendulum, where bdqn has no posterior for each action
    assert sorted(pairs) == sorted(
        (a, e) for a in ALGORITHMS for e in EXPLORERS if e != "bdqn" or a not in continuous
    )


def test_budget_seeds_and_order() -> None:
    suite = Suite("s", "", (Task("A-v0?x=1", 1000, "--a 7"), Task("B-v0", 10)), (Method("ppo"),), (1, 2))
    jobs = suite.jobs(Path("d"), budget=0.25)
    assert [job.label for job in jobs] == [f"{t}/ppo/seed-{s}" for s in (1, 2) for t in ("A-v0", "B-v0")]
    assert [job.steps for job in jobs] == [250, 2, 250, 2]
    assert suite.arguments(*next(suite.cells())) == tuple("ppo --env A-v0?x=1 --explorer none --a 7".split())
    assert suite.jobs(Path("d"), budget=1e-9)[0].steps == 1


def test_names_choose_runs() -> None:
    def chosen(*only: str) -> list[str]:
        return [method.name for _, method in suite.cells(only, ["Swimmer-v4"])]

    suite = SUITES["mujoco-v4"]
    assert chosen("sac") == ["sac", "sac+cae"]
    assert chosen("sac+cae", "ppo+none") == ["ppo", "sac+cae"]
    assert len(chosen()) == 6


def test_wrong_names_get_near_matches() -> None:
    with pytest.raises(UserError, match="did you mean mujoco-v4"):
        suite_named("mujoco-v5")
    with pytest.raises(UserError, match=r"method of mujoco-v4 'sac\+cea'; did you mean sac\+cae"):
        list(SUITES["mujoco-v4"].cells(["sac+cea"]))
    with pytest.raises(UserError, match="task of mujoco-v4 'Swimer-v4'; did you mean Swimmer-v4"):
        list(SUITES["mujoco-v4"].cells((), ["Swimer-v4"]))
    with pytest.raises(UserError, match=r"no run of ppo\+cae_plus-no-u on MiniGrid-DoorKey-8x8-v0"):
        SUITES["minigrid"].jobs(Path(), 1.0, ["ppo+cae_plus-no-u"], ["MiniGrid-DoorKey-8x8-v0"])


def test_minihack_has_the_cells_of_table_5() -> None:
    suite, table = SUITES["minihack"], paper_table("minihack")
    assert {(task.name, method.name) for task, method in suite.cells()} == table.scores.keys()
    assert suite.seeds == table.seeds and all(
        suite.steps(task, method) == 20_000_000 for task, method in suite.cells()
    )


def test_habitat_has_the_cells_of_table_6() -> None:
    suite, table = SUITES["habitat"], paper_table("habitat")
    assert {(task.name, method.name) for task, method in suite.cells()} == table.scores.keys()
    assert suite.seeds == table.seeds and suite.measure == "coverage"
    task, method = next(suite.cells())
    config = train_config(method.algorithm, list(suite.arguments(task, method)[1:]))
    assert config.steps == 100_000_000 and config.eval_every % (config.num_envs * config.rollout) == 0


def test_visual_gives_every_method_one_alpha_and_one_scaling() -> None:
    suite = SUITES["visual"]
    (task,) = suite.tasks
    learners = [method for method in suite.methods if method.explorer != "none"]
    assert [method.name for method in suite.methods if method not in learners] == [
        *("reference-random", "reference-wall", "ppo_recurrent"),
    ]
    configs = [train_config(m.algorithm, list(suite.arguments(task, m)[1:])) for m in learners]
    assert [config.explorer for config in configs] == ["cae", "cae_plus", "e3b", "rnd", "icm", "noveld"]
    assert {(config.alpha, config.bonus.scaling) for config in configs} == {(0.1, "welford")}
    for config in configs:
        assert config.normalize_advantage and config.env.startswith("VizdoomExplore-train")
        assert config.eval_env.startswith("VizdoomExplore-test")
        assert task.steps is not None and task.steps % (config.num_envs * config.rollout) == 0
        assert task.steps % config.eval_every == 0  # so that the last evaluation follows the last update
