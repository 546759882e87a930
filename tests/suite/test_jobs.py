"""A job knows its command, whether somebody works on it, and what to say of a failure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from critex.run.files import Lock
from critex.suite import Failure, Job


def test_a_run_begins_with_train_and_goes_on_with_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job("a", Path("runs/a"), ("dqn", "--seed", "1"), 10)
    out = str(tmp_path / "runs" / "a")
    assert job.arguments() == ["train", "dqn", "--seed", "1", "--no-progress", "--out", out]
    job.out.mkdir(parents=True)
    (job.out / "config.toml").touch()
    assert job.arguments() == ["resume", out]
    for flags in (("--env", "mine:My-v0"), ("--env=mine:My-v0?x=1",), ("--eval-env", "mine:My-v0")):
        assert replace(job, train=("dqn", *flags)).arguments() == ["resume", out, "--allow-import"]
    assert not job.finished
    (job.out / "card.json").touch()
    assert job.finished


def test_in_use_while_a_process_holds_the_lock(tmp_path: Path) -> None:
    job = Job("a", tmp_path, ("dqn",), 10)
    assert not job.in_use
    lock = Lock(tmp_path)
    assert job.in_use and job.in_use
    lock.release()
    assert not job.in_use


def test_progress_is_read_from_the_end_of_the_metrics(tmp_path: Path) -> None:
    job = Job("a", tmp_path, ("dqn",), 10)
    assert job.progress() == (0, 0.0, None)
    lines = [{"kind": "episode", "step": i, "time": i / 2, "return": -i} for i in range(1000)]
    lines.append({"kind": "train", "step": 1000, "time": 501.5, "loss": 1.0})
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "ep'
    )
    assert job.progress() == (1000, 501.5, -999)


def test_progress_of_odd_files(tmp_path: Path) -> None:
    """One odd run must not stop the launcher of all."""
    job = Job("a", tmp_path, ("dqn",), 10)
    metrics = tmp_path / "metrics.jsonl"
    metrics.mkdir()
    assert job.progress() == (0, 0.0, None)
    metrics.rmdir()
    lines = (
        '{"kind": "episode", "step": 1, "time": 0.5, "return": 2}',
        '{"kind": "episode", "step": 2, "time": "late"}',
        '{"kind": "episode", "step": [3], "time": null, "return": "NaN"}',
        '{"kind": "episode", "step": Infinity, "return": NaN}',
        "[" * 5000,
    )
    metrics.write_text("\n".join(lines))
    assert job.progress() == (2, 0.5, 2)


def test_a_failure_tells_how_and_the_end_of_the_log(tmp_path: Path) -> None:
    job = Job("a", tmp_path / "a", ("dqn",), 10)
    assert job.log_tail() == []
    job.log.write_text("\n".join(map(str, range(9))) + "\n\n")
    assert job.log_tail() == ["4", "5", "6", "7", "8"]
    failure = Failure(job, 2, tuple(job.log_tail()))
    assert str(failure) == f"a failed with exit code 2: 8 (full log: {tmp_path / 'a.log'})"
    assert Failure(job, -15).how == "was killed by signal 15"
    assert "no output" in str(Failure(job, 1))
