"""Jobs side by side: skipped when finished, resumed when interrupted, failures named and the rest done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from critex.suite import Job, launch

FLAGS = "--env DeepSea-4-v0 --steps 400 --learning-starts 20 --no-tensorboard --checkpoint-every 100".split()


def job(out: Path, *extra: str) -> Job:
    return Job(out.name, out, ("dqn", *FLAGS, *extra), 400)


def test_runs_all_names_failures_and_skips_what_is_finished(tmp_path: Path) -> None:
    jobs = [
        job(tmp_path / "a"),
        job(tmp_path / "b", "--env", "Pendulum-v1"),
        job(tmp_path / "c", "--seed", "1"),
    ]
    failures = launch(jobs, parallel=2)
    assert [failure.job.label for failure in failures] == ["b"]
    assert "discrete actions" in str(failures[0]) and "exit code 2" in str(failures[0])
    assert jobs[0].finished and jobs[2].finished
    card = (tmp_path / "a" / "card.json").stat().st_mtime_ns
    assert [failure.job.label for failure in launch(jobs, parallel=1)] == ["b"]
    assert (tmp_path / "a" / "card.json").stat().st_mtime_ns == card
    assert jobs[0].progress()[0] == 400


def test_an_interrupted_job_goes_on(tmp_path: Path) -> None:
    one = job(tmp_path / "a", "--steps", "4000")
    process = subprocess.Popen(one.command(), stderr=subprocess.DEVNULL)
    while not (one.out / "checkpoints" / "step-000000000100.ckpt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert one.command()[3] == "resume"
    assert launch([one]) == []
    steps = [json.loads(line)["step"] for line in (one.out / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps) and steps[-1] == 4000


def test_a_run_that_somebody_else_finishes_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a launcher was killed its runs go on: resuming one is refused, and meanwhile it ends well."""

    def refused(one: Job) -> subprocess.Popen[bytes]:
        one.out.mkdir()
        (one.out / "card.json").touch()
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(2)"])

    monkeypatch.setattr(sys.modules["critex.suite.launch"], "_start", refused)
    assert launch([job(tmp_path / "a")]) == []


def test_ctrl_c_reaches_the_runs_and_loses_nothing(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from tests.suite.test_launch import job; from critex.suite import launch;"
        f"launch([job(Path({str(tmp_path / 'a')!r}), '--steps', '1000000')])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stderr=subprocess.DEVNULL, start_new_session=True
    )
    while not list(tmp_path.glob("a/checkpoints/step-0000000001*")):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) != 0
    assert "go on with" in (tmp_path / "a.log").read_text()
