"""On a Ray cluster runs are what they are here, and survive the same kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from critex.errors import UserError
from critex.suite import launch
from critex.suite.places import RayCluster, ray_cluster

from .test_launch import STEPS, begun, job, metrics, pid_of, story, wait_for

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: critex[ray]")


@needs_ray
def test_same_metrics_here_and_on_a_cluster_where_a_run_and_a_node_are_killed(tmp_path: Path) -> None:
    """A node dies with the actor that watches the run, and with the run."""
    killed, lost, here = (job(tmp_path / name, steps=STEPS) for name in ("killed", "lost", "here"))

    def murderer() -> None:
        wait_for(lambda: begun(killed))
        os.kill(wait_for(lambda: pid_of(tmp_path, killed)), signal.SIGKILL)

    def disaster() -> None:
        wait_for(lambda: begun(lost))
        pid = wait_for(lambda: pid_of(tmp_path, lost))
        os.kill(pid, signal.SIGSTOP)  # it waits here for its end
        os.kill(parent_of(pid), signal.SIGKILL)
        wait_for(lambda: "lost the worker" in lost.log.read_text())
        os.kill(pid, signal.SIGKILL)

    threads = [threading.Thread(target=target) for target in (murderer, disaster)]
    with started(cpus=2) as place:
        assert place.cpus == 2
        for thread in threads:
            thread.start()
        assert launch([killed, lost], place=place, ledger=tmp_path) == []
    for thread in threads:
        thread.join()
    assert launch([here]) == []
    assert story(tmp_path, killed) == story(tmp_path, lost) == ["began", "failed", "began", "finished"]
    assert metrics(killed) == metrics(lost) == metrics(here)


TOO_BUSY = "timed out during startup"  # Ray gives itself 30 seconds


@contextmanager
def started(cpus: int) -> Iterator[RayCluster]:
    """A cluster here, unless this machine is too busy for Ray to start at all."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(ray_cluster(None, cpus))
        except UserError as error:
            if TOO_BUSY in str(error):
                pytest.skip(str(error))
            raise
        yield place


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


@needs_ray
def test_after_a_killed_launcher_of_a_cluster_nothing_is_lost(tmp_path: Path) -> None:
    one, other = (job(tmp_path / name, steps=STEPS) for name in "ab")
    script = (
        "from pathlib import Path; from tests.suite.test_launch import job; from critex.suite import launch, places\n"
        f"out = Path({str(tmp_path)!r})\n"
        "with places.ray_cluster(None, 1) as place:\n"
        f"    launch([job(out / name, steps={STEPS}) for name in 'ab'], 1, place=place, ledger=out)"
    )
    command = [sys.executable, "-c", script]
    errors = tmp_path / "errors.txt"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=stderr, cwd=Path(__file__).parents[2]
        )
    try:
        wait_for(lambda: begun(one) or process.poll() is not None)
        if process.poll() is not None and TOO_BUSY in errors.read_text():
            pytest.skip("Ray takes longer than 30 s to start: this machine is too busy")
        assert process.poll() is None, errors.read_text()
    finally:
        process.kill()
        process.wait()
    assert launch([one, other], ledger=tmp_path) == []
    assert one.finished and other.finished
    assert metrics(one) == metrics(other)
