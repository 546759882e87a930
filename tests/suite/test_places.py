"""On a Ray cluster runs are what they are here, and survive the same kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from critex.errors import UserError
from critex.suite import launch, places
from critex.suite.ledger import LEDGER, read_ledger
from critex.suite.places import RayCluster, ray_cluster

from .test_launch import STEPS, begun, job, metrics, pid_of, story, wait_for

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: critex[ray]")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(None, cpus=2) as place:
        yield place


@needs_ray
def test_same_metrics_here_and_on_a_cluster_where_a_worker_is_killed(
    tmp_path: Path, cluster: RayCluster
) -> None:
    assert cluster.cpus == 2
    here, victim, other = (
        job(tmp_path / "here", steps=STEPS),
        *(job(tmp_path / name, steps=STEPS) for name in ("victim", "other")),
    )

    def murderer() -> None:
        wait_for(lambda: begun(victim))
        os.kill(wait_for(lambda: pid_of(tmp_path, victim)), signal.SIGKILL)

    thread = threading.Thread(target=murderer)
    thread.start()
    assert launch([victim, other], place=cluster, ledger=tmp_path) == []
    thread.join()
    assert launch([here]) == []
    assert story(tmp_path, victim) == ["began", "failed", "began", "finished"]
    assert story(tmp_path, other) == ["began", "finished"]
    assert metrics(victim) == metrics(other) == metrics(here)
    parent = {line["pid"] for line in read_ledger(tmp_path / LEDGER)}
    assert os.getpid() not in parent


@needs_ray
def test_a_lost_node_is_a_failure_that_is_tried_again(tmp_path: Path, cluster: RayCluster) -> None:
    """The actor beside the run dies, as it does when its node does."""
    one = job(tmp_path / "a", steps=STEPS)

    def murderer() -> None:
        wait_for(lambda: begun(one))
        pid = wait_for(lambda: pid_of(tmp_path, one))
        actor = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(pid, signal.SIGSTOP)
        os.kill(actor, signal.SIGKILL)
        wait_for(lambda: "lost the worker" in one.log.read_text())
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=murderer)
    thread.start()
    assert launch([one], place=cluster, ledger=tmp_path) == []
    thread.join()
    assert story(tmp_path, one) == ["began", "failed", "began", "finished"]
    assert metrics(one)[-1]["step"] == STEPS


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
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2]
    )
    try:
        wait_for(lambda: begun(one), process)
    finally:
        process.kill()
        process.wait()
    assert launch([one, other], ledger=tmp_path) == []
    assert one.finished and other.finished
    assert metrics(one) == metrics(other)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'critex\[ray\]'"), ray_cluster(None, 1):
        pass


@needs_ray
@pytest.mark.parametrize(
    ("address", "message"),
    [("127.0.0.1:1", "reached at 127.0.0.1:1: .*refused"), ("nonsense", "as in auto, host:6379")],
)
def test_an_address_where_nobody_is_is_refused_at_once(address: str, message: str) -> None:
    with pytest.raises(UserError, match=message), ray_cluster(address, 1):
        pass


def test_long_messages_become_one_line() -> None:
    error: Any = ValueError("a\n  b")
    assert places.one_line(error) == "a b"
    assert len(places.one_line(ValueError("x" * 1000))) < 450
