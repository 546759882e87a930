"""Where runs execute: in processes on this machine, or on the nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from critex.run.cluster import connect, one_line
from critex.run.files import disk_errors
from critex.run.record import versions
from critex.suite.jobs import Job

# Two single-threaded processes are faster than one with two threads.
SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Began(NamedTuple):
    """A started process: what, where, and with which versions."""

    arguments: list[str]
    host: str
    pid: int
    versions: dict[str, str]


class Worker(Protocol):
    """A run that was started."""

    def began(self) -> Began | None:
        """Where it runs; None while it waits for a free CPU."""

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def stop(self) -> None:
        """Ask it to write a checkpoint and end; asked twice, it ends at once."""


class Place(Protocol):
    """Starts runs."""

    def start(self, job: Job) -> Worker:
        """Start or resume the job's run; its output is appended to the job's log."""


class Process:
    """One run in its own single-threaded process. A cluster runs this same class on its nodes.

    The process has its own session: Ctrl-C reaches only the launcher, which then asks every run to stop.
    """

    def __init__(self, arguments: list[str], log: str) -> None:
        command = [sys.executable, "-P", "-m", "critex.cli", *arguments]  # -P: no imports from here
        with open(log, "ab") as output:  # noqa: PTH123
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | SINGLE_THREADED,
                start_new_session=True,
            )
        self._began = Began(arguments, socket.gethostname(), self._process.pid, versions())

    def began(self) -> Began:
        return self._began

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


class Here:
    """This machine."""

    def start(self, job: Job) -> Worker:
        with disk_errors(job.log):
            return Process(job.arguments(), str(job.log))


class RayCluster:
    """A Ray cluster whose nodes share the run directory under the same path; each run is an actor with one CPU."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._actor = ray.remote(num_cpus=1, max_restarts=0)(Process)

    @property
    def cpus(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 1))

    def start(self, job: Job) -> Worker:
        return _RayWorker(self._ray, self._actor.remote(job.arguments(), str(job.log.absolute())), job)


class _RayWorker:
    """The launcher's view of a `Process` on a node; no call here blocks."""

    def __init__(self, ray: Any, actor: Any, job: Job) -> None:
        self._ray, self._actor, self._job = ray, actor, job
        self._asked = {"began": actor.began.remote(), "poll": actor.poll.remote()}
        self._lost = False

    def began(self) -> Began | None:
        began: Began | None = self._answer("began")
        return began

    def poll(self) -> int | None:
        code: int | None = self._answer("poll")
        return 1 if self._lost else code

    def stop(self) -> None:
        if self.began():
            self._actor.stop.remote()
        else:  # it has not started
            self._ray.kill(self._actor)

    def _answer(self, question: str) -> Any:
        """The actor's last answer, if there is one; then ask again."""
        ready, _ = self._ray.wait([self._asked[question]], timeout=0)
        if not ready or self._lost:
            return None
        try:
            answer = self._ray.get(ready[0])
        except self._ray.exceptions.RayError as error:
            self._lost = True
            with contextlib.suppress(OSError), self._job.log.open("a", encoding="utf-8") as log:
                log.write(f"lost the worker on the Ray cluster: {one_line(error)}\n")
            return None
        self._asked[question] = getattr(self._actor, question).remote()
        return answer


@contextlib.contextmanager
def ray_cluster(address: str | None, cpus: int) -> Iterator[RayCluster]:
    """The cluster at `address`, or a new one on this machine with `cpus` CPUs that ends with the block."""
    ray, own = connect(address, cpus)
    try:
        yield RayCluster(ray)
    finally:
        if own:
            ray.shutdown()
