from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from critex.errors import UserError
from critex.run import TIMING_FIELDS, Interrupted, Run, RunConfig, from_dict, read_config, read_metrics
from critex.run.seeding import limit_threads
from tests.run import toy


class Part:
    """A state of one number and the draws of the three global generators."""

    def __init__(self) -> None:
        self.value = 0.0

    def advance(self) -> None:
        self.value += random.random() + np.random.random() + torch.rand(()).item()

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def options(path: Path, **changes: Any) -> RunConfig:
    quiet = {"tensorboard": False, "progress": False, "log_every": 1, "checkpoint_every": 10}
    return RunConfig(out=str(path), **{**quiet, **changes})


def train(run: Run, total: int = 40, stop_at: int | None = None, times: int = 1) -> None:
    part = Part()
    run.attach(part=part)
    for step in run.steps(total):
        part.advance()
        run.log({"value": part.value})
        if step == stop_at:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
    run.finish()


def create(path: Path, **changes: Any) -> Run:
    return Run.create("test", options(path, **changes))


def resume(path: Path) -> Run:
    return Run.open(path, from_dict(RunConfig, read_config(path)[1]))


def lines(path: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k not in TIMING_FIELDS} for line in read_metrics(path)]


@pytest.fixture
def whole(tmp_path: Path) -> list[dict[str, Any]]:
    """What an undisturbed run of `train` writes."""
    with create(tmp_path / "whole") as run:
        train(run)
    return lines(tmp_path / "whole")


# The loop -----------------------------------------------------------------------------------------------------


def test_steps_count_environment_steps_before_the_iteration(tmp_path: Path) -> None:
    with create(tmp_path / "a") as run:
        assert [(step, run.step) for step in run.steps(10, 4)] == [(0, 4), (4, 8), (8, 12)]


def test_lines_are_logged_when_due(tmp_path: Path) -> None:
    with create(tmp_path / "a", log_every=10) as run:
        for step in run.steps(45, 3):
            if step > 12 and run.due():  # as an algorithm that cannot update before step 12
                run.log({"x": torch.tensor(1.5)})
    assert [(line["step"], line["x"]) for line in lines(tmp_path / "a")] == [
        (s, 1.5) for s in (18, 21, 30, 42)
    ]


def test_first_and_last_checkpoint(tmp_path: Path) -> None:
    with create(tmp_path / "a") as run:
        loop = run.steps(25)
        next(loop)
        files = tmp_path / "a" / "checkpoints"
        assert [path.name for path in files.iterdir()] == ["step-000000000000.ckpt"]
        list(loop)
        run.finish({"parameters": 7})
    assert sorted(path.name for path in files.iterdir()) == [
        "step-000000000020.ckpt",
        "step-000000000025.ckpt",
    ]
    card = json.loads((tmp_path / "a" / "card.json").read_text())
    assert card["parameters"] == 7
    assert card["totals"]["env_steps"] == 25
    assert card["totals"]["max_rss_bytes"] > 2**20


def test_checkpoints_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("critex.run.run.TICK", 0.0)
    with create(tmp_path / "a", checkpoint_every=0, checkpoint_minutes=1e-9) as run:
        list(run.steps(5))
        assert run._checkpoints.files()[0].name == "step-000000000005.ckpt"


def test_episode_lines(tmp_path: Path) -> None:
    with create(tmp_path / "a") as run:
        for _ in run.steps(2, 2):
            run.episodes([toy_episode(1, 7, 2.5), toy_episode(0, 3, -1.0)])
    assert lines(tmp_path / "a") == [
        {"kind": "episode", "step": 2, "return": 2.5, "length": 7, "env": 1},
        {"kind": "episode", "step": 2, "return": -1.0, "length": 3, "env": 0},
    ]


def toy_episode(env: int, length: int, total: float) -> Any:
    from critex.envs import Episode

    return Episode(env, length, total)


def test_same_seed_same_metrics(tmp_path: Path, whole: list[dict[str, Any]]) -> None:
    for seed, same in ((0, True), (1, False)):
        with create(tmp_path / f"{seed}", seed=seed) as run:
            train(run)
        assert (lines(tmp_path / f"{seed}") == whole) is same


# Stopping and going on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_at", [0, 7, 9, 39])
def test_ctrl_c_checkpoints_and_the_run_goes_on(
    tmp_path: Path, whole: list[dict[str, Any]], stop_at: int
) -> None:
    path = tmp_path / "a"
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted) as stopped, create(path) as run:
        train(run, stop_at=stop_at)
    assert str(stopped.value) == f"stopped at step {stop_at + 1}; resume with: critex resume {path}"
    assert stopped.value.exit_code == 130
    assert signal.getsignal(signal.SIGINT) is before
    with resume(path) as run:
        train(run)
    assert lines(path) == whole


def test_second_ctrl_c_stops_at_once(tmp_path: Path, whole: list[dict[str, Any]]) -> None:
    path = tmp_path / "a"
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), create(path) as run:
        train(run, stop_at=15, times=2)
    assert signal.getsignal(signal.SIGINT) is before
    assert [f.name for f in (path / "checkpoints").glob("*15*")] == []
    with resume(path) as run:
        train(run)
    assert lines(path) == whole


def test_runs_outside_the_main_thread(tmp_path: Path, whole: list[dict[str, Any]]) -> None:
    def work() -> None:
        with create(tmp_path / "a") as run:
            train(run)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert lines(tmp_path / "a") == whole


def test_an_exception_in_the_loop_comes_through_and_the_run_goes_on(
    tmp_path: Path, whole: list[dict[str, Any]]
) -> None:
    path, part = tmp_path / "a", Part()
    with pytest.raises(ZeroDivisionError), create(path) as run:
        run.attach(part=part)
        for step in run.steps(40):
            part.advance()
            run.log({"value": part.value if step < 25 else 1 / 0})
    assert lines(path)[-1]["step"] == 25  # what was logged can be read
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with resume(path) as run:
        train(run)
    assert lines(path) == whole


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(
    tmp_path: Path, whole: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a"
    with pytest.raises(Interrupted), create(path) as run:
        train(run, stop_at=25)
    newest = path / "checkpoints" / "step-000000000026.ckpt"
    content = bytearray(newest.read_bytes())
    content[-50] ^= 255
    newest.write_bytes(content)
    capsys.readouterr()
    with resume(path) as run:
        train(run)
    report = capsys.readouterr().err.splitlines()
    assert report == [
        f"{newest} is damaged: its checksum does not match; trying the previous one",
        f"{path}: resumed at step 20",
    ]
    assert newest.with_suffix(".damaged").exists()
    assert lines(path) == whole


def test_the_oldest_checkpoint_has_no_previous_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a"
    with pytest.raises(Interrupted), create(path) as run:
        train(run, stop_at=25)
    capsys.readouterr()
    for checkpoint in (path / "checkpoints").glob("*.ckpt"):
        checkpoint.write_bytes(b"rubbish")
    with pytest.raises(UserError, match="no valid checkpoint"), resume(path) as run:
        train(run)
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("; trying the previous one") and "previous" not in last


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-100], lambda data: data[:600] + b"rubbish" + data[607:]]
)
def test_a_damaged_chunk_too(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any) -> None:
    path = tmp_path / "a"
    toy.create(path, steps=500)
    expected = lines(path)
    (path / "card.json").unlink()
    chunk = max((path / "checkpoints" / "replay").glob("replay-*.pt"))  # only the newest checkpoint needs it
    chunk.write_bytes(damage(chunk.read_bytes()))
    toy.resume(path)
    report = capsys.readouterr().err
    assert f"{path / 'checkpoints' / 'step-000000000500.ckpt'} cannot be used: replay: " in report
    assert "resumed at step 400" in report
    assert lines(path) == expected


def test_no_valid_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(Interrupted), create(path) as run:
        train(run, stop_at=25)
    for file in (path / "checkpoints").iterdir():
        file.write_bytes(b"rubbish")
    with resume(path) as run, pytest.raises(UserError, match=r"no valid checkpoint in .*checkpoints"):
        train(run)
    for file in (path / "checkpoints").iterdir():
        file.unlink()
    before = lines(path)
    with resume(path) as run, pytest.raises(UserError, match=r"no valid checkpoint in .*checkpoints"):
        train(run)
    assert lines(path) == before  # and nothing was lost by trying


def test_killed_before_the_first_checkpoint_a_run_begins_anew(
    tmp_path: Path, whole: list[dict[str, Any]]
) -> None:
    create(tmp_path / "a").close()
    with resume(tmp_path / "a") as run:
        train(run)
    assert lines(tmp_path / "a") == whole


def test_parts_must_be_those_of_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Interrupted), create(tmp_path / "a") as run:
        train(run, stop_at=3)
    with resume(tmp_path / "a") as run, pytest.raises(UserError, match="holds part where other are needed"):
        run.attach(other=Part())
    with (
        resume(tmp_path / "a") as run,
        pytest.raises(UserError, match=r"does not fit the config of its run: part: .*Missing key"),
    ):
        run.attach(part=torch.nn.Linear(2, 2))


# Directories ----------------------------------------------------------------------------------------------------


def test_existing_directories_are_refused(tmp_path: Path) -> None:
    create(tmp_path / "a").close()
    with pytest.raises(
        UserError, match=r"a exists already; resume it with `critex resume .*a` or choose another --out"
    ):
        create(tmp_path / "a")
    (tmp_path / "b").mkdir()
    create(tmp_path / "b").close()  # an empty one is fine
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").touch()
    with pytest.raises(UserError, match="c exists already and holds other files"):
        create(tmp_path / "c")
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["thesis.tex"]
    (tmp_path / "d").touch()
    with pytest.raises(UserError, match="d is a file; choose another --out"):
        create(tmp_path / "d")
    with pytest.raises(UserError, match=r"cannot write .*d/e.*Not a directory"):
        create(tmp_path / "d" / "e")


def test_suggested_commands_can_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "my run"
    command = f"critex resume '{path}'"
    with create(path) as run:
        assert run._hint.endswith(command)
        with pytest.raises(UserError, match=re.escape(f"`{command}`")):
            create(path)
        train(run)
    with pytest.raises(UserError, match=re.escape(f"critex eval '{path}'")):
        resume(path)


def test_what_is_no_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist"):
        Run.open(tmp_path / "nowhere", RunConfig())
    with pytest.raises(UserError, match=r"is not a run directory: it has no config\.toml"):
        Run.open(tmp_path, RunConfig())
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file is a file; a run is a directory"):
        Run.open(tmp_path / "file", RunConfig())
    with create(tmp_path / "a") as run:
        train(run)
    with pytest.raises(UserError, match="is finished: nothing to resume"):
        resume(tmp_path / "a")


def test_one_process_a_run(tmp_path: Path) -> None:
    with create(tmp_path / "a"):
        code = f"from critex.run import Run, RunConfig; Run.open({str(tmp_path / 'a')!r}, RunConfig())"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"a is in use by process {os.getpid()}; wait for it or end it first" in other.stderr
    resume(tmp_path / "a").close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match=r"cannot write .*a \(Permission denied\); check its permissions"):
        create(tmp_path / "a")


def test_permission_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(UserError, match=r"cannot write .*a \(Permission denied\); check its permissions"):
        create(tmp_path / "a")


# Full disks -----------------------------------------------------------------------------------------------------


def test_disk_full_while_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a"
    with create(path) as run:
        run.log({"x": 1})
        with monkeypatch.context() as patched, pytest.raises(UserError) as error:
            patched.setattr(os, "write", full)
            run.checkpoint()
    assert str(error.value) == (
        f"no space left to write {path}/metrics.jsonl (No space left on device); free some, "
        f"then continue from the last checkpoint with: critex resume {path}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "culprit"),
    [({"chunk": 400}, "checkpoints"), ({"chunk": 20, "log_every": 2}, "metrics.jsonl")],
)
def test_a_file_that_cannot_grow_stops_the_run_and_nothing_is_lost(
    tmp_path: Path, options: dict[str, int], culprit: str
) -> None:
    toy.create(tmp_path / "whole", steps=900, **options)
    path = tmp_path / "a"
    arguments = " ".join(f"{name}={value}" for name, value in options.items())
    command = f"ulimit -f 40; exec {sys.executable} {toy.__file__} create {path} steps=900 {arguments}"  # 40 kB a file
    stopped = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert stopped.returncode == 2, stopped.stderr
    assert stopped.stderr == (
        f"no space left to write {path}/{culprit} (File too large); free some, "
        f"then continue from the last checkpoint with: critex resume {path}\n"
    )
    toy.resume(path)
    assert lines(path) == lines(tmp_path / "whole")


def test_threads_are_those_of_blas_too() -> None:
    """The bonus is computed by SciPy's BLAS, which asks the machine and not torch how many threads to use."""
    before = torch.get_num_threads()
    try:
        with threadpool_limits(2):  # puts back what was there
            limit_threads(1)
            pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
            assert pools and all(pool["num_threads"] == 1 for pool in pools)
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
