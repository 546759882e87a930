"""Jobs side by side: skipped when finished, resumed when interrupted, tried twice when they crash, and real kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from critex.run import TIMING_FIELDS, read_metrics
from critex.run.files import Lock
from critex.suite import Job, launch
from critex.suite.launch import Launcher
from critex.suite.ledger import LEDGER, Ledger, read_ledger

FLAGS = "--env DeepSea-4-v0 --learning-starts 20 --no-tensorboard --checkpoint-every 100".split()
STEPS = 1500


def job(out: Path, *extra: str, steps: int = 400) -> Job:
    return Job(out.name, out, ("dqn", *FLAGS, "--steps", str(steps), *extra), steps)


def metrics(run: Job) -> list[dict[str, Any]]:
    lines = read_metrics(run.out)
    return [{key: value for key, value in line.items() if key not in TIMING_FIELDS} for line in lines]


def story(directory: Path, run: Job) -> list[str]:
    """began, failed, began, finished: what the ledger tells of a run."""
    lines = [line for line in read_ledger(directory / LEDGER) if line["run"] == run.out.name]
    return [line.get("outcome", "began") for line in lines]


def pid_of(directory: Path, run: Job) -> int | None:
    """Of the process that works on it."""
    lines = [line for line in read_ledger(directory / LEDGER) if line["run"] == run.out.name]
    return lines[-1]["pid"] if lines and lines[-1]["event"] == "began" else None


def wait_for(what: Callable[[], Any], process: subprocess.Popen[bytes] | None = None) -> Any:
    for _ in range(4000):
        if found := what():
            return found
        assert process is None or process.poll() is None, "it ended too early"
        time.sleep(0.05)
    raise AssertionError("waited minutes in vain")


def begun(run: Job) -> bool:
    return any((run.out / "checkpoints").glob("step-*1*.ckpt"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The metrics of a run that nobody kills."""
    whole = job(tmp_path_factory.mktemp("whole") / "whole", steps=STEPS)
    assert launch([whole]) == []
    return metrics(whole)


def test_runs_all_names_failures_and_skips_what_is_finished(tmp_path: Path) -> None:
    jobs = [
        job(tmp_path / "a"),
        job(tmp_path / "b", "--env", "Pendulum-v1"),
        job(tmp_path / "c", "--seed", "1"),
    ]
    failures = launch(jobs, parallel=2, ledger=tmp_path)
    assert [failure.job.label for failure in failures] == ["b"]
    assert "discrete actions" in str(failures[0]) and "exit code 2" in str(failures[0])
    assert jobs[0].finished and jobs[2].finished
    assert story(tmp_path, jobs[0]) == ["began", "finished"]
    assert story(tmp_path, jobs[1]) == ["began", "failed"], "critex refused it, and would again"
    last = [line for line in read_ledger(tmp_path / LEDGER) if line["run"] == "b"][-1]
    assert last["code"] == 2 and "discrete actions" in last["log"][-1]
    assert launch(jobs[::2], ledger=tmp_path) == []
    assert story(tmp_path, jobs[0]) == ["began", "finished"], "it was run again"
    assert jobs[0].progress().step == 400

    began, ended = (line for line in read_ledger(tmp_path / LEDGER) if line["run"] == "a")
    assert began["arguments"] == ["train", *jobs[0].train, "--no-progress", "--out", str(jobs[0].out)]
    assert began["host"] == ended["host"] == os.uname().nodename
    assert began["pid"] == ended["pid"] != os.getpid()
    assert {"python", "torch", "critex"} <= began["versions"].keys()
    assert began["time"] <= ended["time"] and began["time"].endswith("+00:00")


def test_a_killed_worker_is_tried_again_and_the_others_never_notice(
    tmp_path: Path, undisturbed: list[dict[str, Any]]
) -> None:
    victim, other = job(tmp_path / "victim", steps=STEPS), job(tmp_path / "other", steps=STEPS)

    def murderer() -> None:
        wait_for(lambda: begun(victim))
        os.kill(wait_for(lambda: pid_of(tmp_path, victim)), signal.SIGKILL)

    thread = threading.Thread(target=murderer)
    thread.start()
    assert launch([victim, other], ledger=tmp_path) == []
    thread.join()
    assert story(tmp_path, victim) == ["began", "failed", "began", "finished"]
    assert story(tmp_path, other) == ["began", "finished"]
    assert next(line["code"] for line in read_ledger(tmp_path / LEDGER) if "code" in line) == -signal.SIGKILL
    assert metrics(victim) == metrics(other) == undisturbed


def launcher(directory: Path, names: str, steps: int) -> subprocess.Popen[bytes]:
    """A launcher in a process of its own, in a session of its own."""
    script = (
        "from pathlib import Path; from tests.suite.test_launch import job; from critex.suite import launch;"
        f"out = Path({str(directory)!r}); jobs = [job(out / name, steps={steps}) for name in {names!r}];"
        "launch(jobs, ledger=out)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )


def test_after_a_killed_launcher_nothing_is_lost_or_done_twice(
    tmp_path: Path, undisturbed: list[dict[str, Any]]
) -> None:
    first, second, third = (job(tmp_path / name, steps=STEPS) for name in "abc")
    process = launcher(tmp_path, "abc", STEPS)
    try:
        wait_for(lambda: begun(second), process)
        pid = wait_for(lambda: pid_of(tmp_path, second))
        os.kill(pid, signal.SIGSTOP)  # it waits here for its end
        wait_for(lambda: begun(first), process)
    finally:
        process.kill()
        process.wait()
    # Of the two runs that are left without a launcher, one is killed too, and the other goes on by itself.
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not second.in_use)
    assert launch([first, second, third], parallel=2, ledger=tmp_path) == []
    assert story(tmp_path, first) == ["began", "finished"]
    assert story(tmp_path, second) == ["began", "abandoned", "began", "finished"]
    assert story(tmp_path, third) == ["began", "finished"]
    assert metrics(first) == metrics(second) == metrics(third) == undisturbed


def test_asked_to_stop_it_asks_every_run_and_loses_nothing(tmp_path: Path) -> None:
    one = job(tmp_path / "a", steps=1_000_000)
    process = launcher(tmp_path, "a", one.steps)
    wait_for(lambda: begun(one), process)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) != 0
    assert "resume with" in one.log.read_text()
    assert story(tmp_path, one) == ["began", "stopped"]
    assert not one.in_use


def test_a_place_that_cannot_be_written_is_a_failure_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (failure,) = launch([job(tmp_path / "file" / "a")])
    assert "cannot write" in str(failure)


def test_two_launchers_on_one_directory_share_the_work(tmp_path: Path) -> None:
    jobs = [job(tmp_path / name) for name in "ab"]
    found: list[list[Any]] = []
    threads = [threading.Thread(target=lambda: found.append(launch(jobs, ledger=tmp_path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[], []]
    for each in jobs:
        assert "failed" not in story(tmp_path, each)
        assert story(tmp_path, each).count("finished") == 1


def test_runs_of_another_launcher_count(tmp_path: Path) -> None:
    """Two runs are in use by another process: of two allowed, none is left; when one ends, there is room for one."""
    started: list[str] = []

    class Idle(Silent):
        def poll(self) -> None:  # type: ignore[override]
            return None

    class Counting:
        def start(self, job: Job) -> Idle:
            started.append(job.label)
            return Idle()

    jobs = [job(tmp_path / name) for name in "abcd"]
    for each in jobs[:2]:
        each.out.mkdir()
    locks = [Lock(each.out) for each in jobs[:2]]
    launcher = Launcher(jobs, 2, Counting(), Ledger(tmp_path))
    launcher.look()
    assert started == []
    assert [launcher.states[each] for each in jobs] == ["runs already", "runs already", "waits", "waits"]
    locks[0].release()
    launcher.look()
    assert started == ["c"]
    locks[1].release()


class Silent:
    """A worker that ends with exit code 0 and leaves no card."""

    def began(self) -> None:
        return None

    def poll(self) -> int:
        return 0

    def stop(self) -> None:
        return None


def test_a_run_that_was_asked_to_stop_is_stopped(tmp_path: Path) -> None:
    class Patient(Silent):
        asked = False

        def poll(self) -> int | None:  # type: ignore[override]
            return 130 if self.asked else None

        def stop(self) -> None:
            self.asked = True

    class Somewhere:
        def start(self, job: Job) -> Patient:
            return Patient()

    jobs = [job(tmp_path / name) for name in "ab"]
    launcher = Launcher(jobs, 1, Somewhere(), Ledger(tmp_path))
    launcher.look()
    launcher.stop()
    assert [launcher.states[each] for each in jobs] == ["stopped", "waits"]


def test_an_exit_code_of_zero_without_a_card_is_a_failure(tmp_path: Path) -> None:
    class Nowhere:
        def start(self, job: Job) -> Silent:
            return Silent()

    (failure,) = launch([job(tmp_path / "a")], place=Nowhere())
    assert failure.how == "ended before it was finished"


def test_workers_do_not_import_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tyro.py").write_text("open('imported', 'w')")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    assert launch([job(tmp_path / "a")]) == []
    assert not (tmp_path / "imported").exists()
