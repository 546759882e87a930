"""A run that is killed, again and again, writes what a run that was never killed writes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from critex.run import TIMING_FIELDS, read_metrics

TOY = Path(__file__).with_name("toy.py")


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, TOY, *map(str, arguments)], stderr=subprocess.PIPE, text=True)


def metrics(run: Path) -> list[dict]:
    return [{k: v for k, v in line.items() if k not in TIMING_FIELDS} for line in read_metrics(run)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict], float]:
    """The metrics of a run nobody disturbs, and how long it takes."""
    run = tmp_path_factory.mktemp("whole") / "run"
    began = time.monotonic()
    process = start("create", run)
    assert process.wait() == 0, process.stderr.read()
    lines = metrics(run)
    assert {line["kind"] for line in lines} == {"episode", "train", "eval"}
    assert max(line["step"] for line in lines) == 1600
    return lines, time.monotonic() - began


def resume_until_finished(run: Path) -> None:
    process = start("resume", run)
    assert process.wait() == 0, process.stderr.read()


@pytest.mark.parametrize("seed", range(3))
def test_sigkill_at_random_moments(tmp_path: Path, whole: tuple[list[dict], float], seed: int) -> None:
    expected, duration = whole
    rng, run, command = random.Random(seed), tmp_path / "run", "create"
    kills = 0
    while kills < 3:
        process = start(command, run)
        # From before the directory exists to just before the end, with importing torch always behind us.
        wait_for = rng.random()
        deadline = time.monotonic() + duration
        while command == "create" and not run.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(wait_for * 0.4 * duration)
        process.kill()
        code = process.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        command = "resume" if (run / "config.toml").exists() else "create"
    if command == "create" and kills:
        start("create", run).wait()
    elif not (run / "card.json").exists():
        resume_until_finished(run)
    assert kills >= 1
    assert metrics(run) == expected
