"""`critex suite list | show | run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from critex import cli
from critex import suite as suites
from critex.cli.suite import parse_seeds
from critex.errors import UserError
from critex.suite import SUITES, Failure, Job, read_manifest
from critex.suite.ledger import LEDGER, read_ledger


def test_list_and_show_tell_of_every_suite(capsys: pytest.CaptureFixture[str]) -> None:
    cli.dispatch(["suite", "list"])
    listed = capsys.readouterr().out
    for suite in SUITES.values():
        assert f"{suite.name}\n    {suite.title}" in listed
        cli.dispatch(["suite", "show", suite.name])
        shown = capsys.readouterr().out
        for task, method in suite.cells():
            assert f"  {method.name}: critex train {' '.join(suite.arguments(task, method))}" in shown
    assert "180 runs (6 tasks, 6 methods, 5 seeds)" in listed
    cli.dispatch(["suite"])
    assert "list | show NAME | run NAME" in capsys.readouterr().out


def test_run_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    args = ["suite", "run", "smoke", "--only", "dqn+none", "--budget", "0.5", "--out", str(out)]
    cli.dispatch(args)
    assert f"finished: 1 run in {out}" in capsys.readouterr().out
    cli.dispatch(args)
    assert [line["run"] for line in read_ledger(out / LEDGER)] == ["CartPole-v1/dqn/seed-1"] * 2
    assert read_manifest(out).budget == 0.5
    with pytest.raises(UserError, match=r"--budget 0\.5, which cannot be mixed with 1"):
        cli.dispatch(["suite", "run", "smoke", "--out", str(out)])


def test_options_choose_runs_and_failures_show_the_end_of_their_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[Any, ...]] = []

    def launch(jobs: Sequence[Job], *rest: Any) -> list[Failure]:
        calls.append((jobs, *rest))
        return [Failure(jobs[0], -9, ("first", "last"))]

    monkeypatch.setattr(suites, "launch", launch)
    choice = "--only sac --seeds 1-2,9 --budget 0.1 --jobs 3"
    with pytest.raises(UserError, match="1 of 12 runs failed; the same command tries them again"):
        tasks = ["--task", "Swimmer-v4, Ant-v4"]
        cli.dispatch(["suite", "run", "mujoco-v4", *choice.split(), *tasks, "--out", str(tmp_path)])
    ((jobs, parallel, title, place, ledger),) = calls
    assert (parallel, title, place, ledger) == (3, "mujoco-v4", None, tmp_path)
    labels = [
        f"{task}/{method}/seed-{seed}"
        for seed in (1, 2, 9)
        for task in ("Swimmer-v4", "Ant-v4")
        for method in ("sac", "sac+cae")
    ]
    assert [job.label for job in jobs] == labels
    assert {job.steps for job in jobs} == {100_000}
    errors = capsys.readouterr().err
    assert "Swimmer-v4/sac/seed-1 was killed by signal 9" in errors and "    first\n    last\n" in errors


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("run mujoco-v5", "unknown suite 'mujoco-v5'; did you mean mujoco-v4"),
        ("show mojoco-v4", "did you mean mujoco-v4"),
        ("run deepsea --task DeepSea-10", "did you mean DeepSea-10-v0"),
        ("run deepsea --only DQN+CAE", "did you mean dqn.cae"),
        ("run", "NAME"),
        ("rum", "did you mean run"),
        ("run smoke --budget 0", "budget is 0.0"),
        ("run smoke --budget nan", "budget is nan"),
        ("run smoke --jobs 0", "jobs is 0"),
        ("run smoke --only", "--only needs a value"),
        ("run smoke --seeds 3-1", "as in 1-3 or 1,4,7"),
        ("run smoke --seeds ,", "as in 1-3 or 1,4,7"),
        ("run smoke --seeds one", "as in 1-3 or 1,4,7"),
        ("run smoke --ray --ray-address auto", "give only one of them"),
        (
            "run smoke --only dqn --budget 0.01",
            r"with --budget 0\.01, CartPole-v1/dqn/seed-1 cannot run: .* the run has 6",
        ),
        (
            "run smoke --only dqn+none --ray-address localhost:1",
            "no Ray cluster can be reached|ray is not installed",
        ),
        ("run deepsea --budget 0.001", r"DeepSea-6-v0/dqn/seed-1 cannot run"),
    ],
)
def test_bad_input_is_one_clear_line(
    args: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as error:
        cli.dispatch(["suite", *args.split()])
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == [], "a refused command leaves nothing behind"


def test_one_algorithm_that_cannot_run_is_found_before_the_others_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PPO has no warm-up and would run; SAC would be refused after hours of PPO."""
    monkeypatch.setattr(suites, "launch", lambda *_: pytest.fail("it was launched"))
    out = tmp_path / "runs"
    command = ["suite", "run", "smoke", "--only", "ppo+none,sac+none", "--budget", "0.34", "--out", str(out)]
    with pytest.raises(UserError, match="Pendulum-v1/sac/seed-1 cannot run: learning starts after 200 steps"):
        cli.dispatch([*command[:-3], "0.3333", *command[-2:]])
    assert not out.exists()
    monkeypatch.setattr(suites, "launch", lambda *_: [])
    cli.dispatch(command)
    assert read_manifest(out).budget == 0.34


def test_runs_that_have_begun_are_not_set_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("dqn", "dqn+cae"):
        run = tmp_path / "CartPole-v1" / method / "seed-1"
        run.mkdir(parents=True)
        (run / "config.toml").touch()
    (tmp_path / "suite.toml").write_text('suite = "smoke"\nversion = 1\nbudget = 0.01\n')
    monkeypatch.setattr(suites, "launch", lambda *_: [])
    cli.dispatch(
        ["suite", "run", "smoke", "--only", "dqn+none,dqn+cae", "--budget", "0.01", "--out", str(tmp_path)]
    )


def test_seeds() -> None:
    assert parse_seeds("1-3, 7,2") == (1, 2, 3, 7)
    assert parse_seeds("4") == (4,)
    for too_many_or_large in ("1-99999999999", "99999999999999999999"):
        with pytest.raises(UserError, match="at most 1,000 seeds"):
            parse_seeds(too_many_or_large)
