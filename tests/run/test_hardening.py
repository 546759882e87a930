"""Foreign or damaged run directories, lost readers, directories that move: nothing is executed, lost or hidden."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from critex.cli import main
from critex.errors import UserError
from critex.ranges import Count, Options, Probability, Range, check_ranges
from critex.run import Interrupted, Run, RunConfig, from_dict, read_config, read_metrics
from critex.run.checkpoint import read_checkpoint, write_checkpoint
from critex.run.files import Lock, in_use
from tests.run import toy

QUICK = "--env CartPole-v1 --steps 300 --learning-starts 50 --log-every 50 --no-tensorboard".split()


class Part:
    def __init__(self) -> None:
        self.value = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def train(run: Run, total: int = 40, stop_at: int | None = None) -> None:
    part = Part()
    run.attach(part=part)
    for step in run.steps(total):
        part.value += torch.rand(()).item()
        run.log({"value": part.value})
        if step == stop_at:
            run._signals.caught = 2
    run.finish()


def create(path: Path, **changes: Any) -> Run:
    quiet = {"tensorboard": False, "progress": False, "log_every": 1, "checkpoint_every": 10}
    return Run.create("test", RunConfig(out=str(path), **{**quiet, **changes}))


def interrupted(path: Path, **changes: Any) -> Path:
    with pytest.raises(Interrupted), create(path, **changes) as run:
        train(run, stop_at=25)
    return path


def resume(path: Path) -> Run:
    return Run.open(path, from_dict(RunConfig, read_config(path)[1]))


def values(path: Path) -> list[float]:
    return [line["value"] for line in read_metrics(path)]


# Code of others -------------------------------------------------------------------------------------------------


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose config names a module in the current directory that leaves a trace when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "evil.py").write_text(
        "from pathlib import Path\nPath('executed').touch()\n"
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "'Mine-v0' in gymnasium.registry or gymnasium.register('Mine-v0', CartPoleEnv, max_episode_steps=50)\n"
    )
    main(["train", "dqn", *QUICK, "--no-progress", "--out", "run"])
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('"CartPole-v1"', '"evil:Mine-v0"'))
    yield tmp_path
    sys.modules.pop("evil", None)


@pytest.mark.parametrize("command", ["eval", "resume", "explain"])
def test_a_module_named_in_a_run_is_not_imported(
    foreign: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "run"])
    assert stop.value.code == 2
    assert "asks to import the Python module 'evil'" in capsys.readouterr().err
    assert not (foreign / "executed").exists()


def test_allow_import_and_a_module_on_the_command_line(foreign: Path) -> None:
    main(["eval", "run", "--episodes", "1", "--allow-import"])
    assert (foreign / "executed").exists()
    flags = [flag if flag != "CartPole-v1" else "evil:Mine-v0" for flag in QUICK]
    main(["train", "dqn", *flags, "--no-progress", "--out", "own"])
    assert (foreign / "own" / "card.json").exists()


# Links ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "checkpoints", "tensorboard"])
def test_a_resumed_run_does_not_write_through_links(tmp_path: Path, name: str) -> None:
    path, elsewhere = interrupted(tmp_path / "a"), tmp_path / "elsewhere"
    inside = path / name
    if inside.is_dir():
        shutil.move(inside, elsewhere)
    elif inside.exists():
        inside.rename(elsewhere)
    else:
        elsewhere.mkdir()
    before = sorted(elsewhere.iterdir()) if elsewhere.is_dir() else elsewhere.read_bytes()
    inside.symlink_to(elsewhere)
    with pytest.raises(UserError, match=f"{name} is a symbolic link"), resume(path) as run:
        train(run)
    assert before == (sorted(elsewhere.iterdir()) if elsewhere.is_dir() else elsewhere.read_bytes())


def test_temporary_files_are_not_written_through_links(tmp_path: Path) -> None:
    path, victim = interrupted(tmp_path / "a"), tmp_path / "victim"
    victim.write_text("precious")
    for name in ("card.json", "visits.json", "checkpoints/step-000000000030.ckpt"):
        (path / (name + ".tmp")).symlink_to(victim)
    with resume(path) as run:
        train(run)
    assert victim.read_text() == "precious"
    assert (path / "card.json").exists() and not (path / "card.json").is_symlink()


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    path = interrupted(tmp_path / "a")
    (path / "metrics.jsonl").unlink()
    os.mkfifo(path / "metrics.jsonl")
    with pytest.raises(UserError, match="not a regular file"), resume(path):
        pass


# Lost output ----------------------------------------------------------------------------------------------------


def test_a_lost_reader_does_not_end_a_run(tmp_path: Path) -> None:
    code = "import critex.run.progress as p; p.LINE_SECONDS = 0; import critex.run.run as r; r.TICK = 0\n"
    code += f"from critex.cli import main; main({['train', 'dqn', *QUICK, '--out', str(tmp_path / 'a')]!r})"
    code_file = tmp_path / "code.py"
    code_file.write_text(code)
    command = f"{sys.executable} {code_file} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (tmp_path / "a" / "card.json").exists(), done.stderr
    assert done.returncode == 0 and "Error" not in done.stderr


def test_closed_standard_streams_do_not_reach_the_metrics(tmp_path: Path) -> None:
    args = " ".join(["train", "dqn", *QUICK, "--out", str(tmp_path / "a")])
    command = f"{sys.executable} -m critex.cli {args} 0<&- 1>&- 2>&-"
    done = subprocess.run(["bash", "-c", command], check=False)
    assert done.returncode == 0
    assert (tmp_path / "a" / "card.json").exists()
    assert all(line["kind"] for line in read_metrics(tmp_path / "a"))


def test_sys_exit_in_the_loop_is_no_success(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"something called sys.exit\(\) at step 1; resume with"),
        create(tmp_path / "a") as run,
    ):
        for _ in run.steps(5):
            sys.exit(0)


# Directories that move, files that shrink -----------------------------------------------------------------------


def test_a_forked_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Workers of the environments outlive a killed run by seconds; it can be resumed at once."""
    lock = Lock(tmp_path)
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    worker.start()
    assert in_use(tmp_path)
    lock.release()
    deadline = time.monotonic() + 20
    while in_use(tmp_path) and time.monotonic() < deadline:  # the worker gives it up as soon as it runs
        time.sleep(0.01)
    assert worker.is_alive() and not in_use(tmp_path)
    worker.kill()


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_a_directory_that_goes_away_is_noticed(tmp_path: Path, how: str) -> None:
    path, steps = tmp_path / "a", 0
    gone = pytest.raises(UserError, match=r"a was moved or removed during training; stopped at step 20")
    with gone, create(path) as run:
        part = Part()
        run.attach(part=part)
        for steps in run.steps(100):
            part.value += torch.rand(()).item()
            run.log({"value": part.value})
            if steps == 12:
                path.rename(tmp_path / "b")
                if how == "removed":
                    shutil.rmtree(tmp_path / "b")
                if how == "replaced":
                    path.mkdir()
    assert not path.exists() or not list(path.iterdir())
    if how == "moved":
        with create(tmp_path / "whole") as run:
            train(run)
        with resume(tmp_path / "b") as run:
            train(run)
        assert values(tmp_path / "b") == values(tmp_path / "whole")


def test_metrics_shorter_than_the_newest_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with create(tmp_path / "whole") as run:
        train(run)
    path = interrupted(tmp_path / "a")
    metrics = path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-10])
    with resume(path) as run:
        train(run)
    assert "fewer than" in (report := capsys.readouterr().err) and "resumed at step 20" in report
    assert values(path) == values(tmp_path / "whole")


# Checkpoints of others ------------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_run_or_seed_is_refused(tmp_path: Path) -> None:
    path, other = interrupted(tmp_path / "a"), interrupted(tmp_path / "b")
    for file in (path / "checkpoints").iterdir():
        shutil.copy(other / "checkpoints" / file.name, file)
    with pytest.raises(UserError, match="no valid checkpoint"), resume(path) as run:
        train(run)
    config = other / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 5"))
    with pytest.raises(UserError, match="made with seed 0, the config says 5"), resume(other) as run:
        train(run)


CRAFTED = [
    {},
    {"parts": {"part": {"value": 1.0}}},
    {"parts": [], "run": {}, "log": {}, "rng": {}},
    {"parts": {"part": None}, "run": {"step": 1}},
    {"parts": {"part": {"value": 1.0}}, "run": {"step": "x", "next_eval": 0}},
]


@pytest.mark.parametrize("state", CRAFTED)
def test_crafted_checkpoints_end_in_one_line(tmp_path: Path, state: dict[str, Any]) -> None:
    path = interrupted(tmp_path / "a")
    before = (path / "metrics.jsonl").read_bytes()
    for file in (path / "checkpoints").glob("*.ckpt"):
        write_checkpoint(file, state)
    with pytest.raises(UserError, match="no valid checkpoint") as error, resume(path) as run:
        train(run)
    assert "\n" not in str(error.value)
    assert (path / "metrics.jsonl").read_bytes() == before


def test_a_flipped_bit_in_the_version_falls_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = interrupted(tmp_path / "a")
    newest = max((path / "checkpoints").glob("*.ckpt"))
    data = bytearray(newest.read_bytes())
    data[data.index(b" ") + 1] ^= 1  # 2 → 3, a version that does not exist yet
    newest.write_bytes(data)
    with resume(path) as run:
        train(run)
    assert "resumed at step 20" in capsys.readouterr().err


def test_a_crafted_chunk_falls_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a"
    toy.create(path, steps=500)
    (path / "card.json").unlink()
    chunk = max((path / "checkpoints" / "replay").glob("replay-*.pt"))
    torch.save({"first": "zero", "rows": 3}, chunk)
    toy.resume(path)
    assert "resumed at step 400" in capsys.readouterr().err


def test_the_id_is_in_config_and_checkpoint(tmp_path: Path) -> None:
    path = interrupted(tmp_path / "a")
    state = read_checkpoint(max((path / "checkpoints").glob("*.ckpt")))
    assert f'id = "{state["run"]["id"]}"' in (path / "config.toml").read_text()


# Values ---------------------------------------------------------------------------------------------------------


@dataclass
class Example(Options):
    gamma: Probability = 0.9
    widths: tuple[Count, ...] = (1,)
    size: Count | None = None
    share: float | None = None
    angle: Range = 0.0  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gamma": -1.0}, "gamma is -1.0; it must be between 0 and 1"),
        ({"gamma": float("nan")}, "gamma is nan; it must be a finite number"),
        ({"widths": (3, 0)}, "widths is 0; it must be at least 1"),
        ({"size": 0}, "size is 0; it must be at least 1"),
        ({"share": float("inf")}, "share is inf; it must be a finite number"),
        ({"size": 2**63}, "size is too large; it must be at most 9223372036854775807"),
    ],
)
def test_numbers_outside_their_range_are_one_line(values: dict[str, Any], message: str) -> None:
    check_ranges(Example())
    with pytest.raises(UserError, match=message):
        Example(**values)


def test_every_number_of_a_run_declares_its_range_and_help_shows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "dqn", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "(default: 1000; at least 1)" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--env CartPole-v1?max_episode_steps=0", "CartPole-v1 cannot be made with max_episode_steps=0"),
        ("--env CartPole-v1?id=3", "does not take the option id"),
        ("--num-envs 30 --buffer-size 20", "buffer_size of at least 30"),
        ("--log-every 0", "log_every is 0; it must be at least 1"),
        ("--checkpoint-minutes inf", "it must be a finite number"),
    ],
)
def test_bad_values_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, message: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "dqn", *flags.split(), "--no-progress", "--out", str(tmp_path / "a")])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and err.count("\n") == 1 and message in err


@pytest.mark.parametrize("command", [["train", "dqn", "--out"], ["resume"], ["eval"]])
def test_long_and_unprintable_paths_are_one_line(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("x" * 5000, "\x1b[31mred", "\udcff"):
        with pytest.raises(SystemExit) as stop:
            main([*command, path])
        err = capsys.readouterr().err
        assert stop.value.code == 2 and err.count("\n") == 1 and "\x1b" not in err
