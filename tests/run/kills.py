"""Kill toy runs with SIGKILL and resume them: `python kills.py random <directory> <kills>` or `… operations <directory>`.

A process of its own, because it forks: torch is imported once, and each victim starts in milliseconds. It prints one
line of JSON with what it did, and fails when a resumed run's metrics differ from those of a run never killed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import toy

from critex.run import TIMING_FIELDS, read_metrics

DISK_OPERATIONS = ("write", "fsync", "replace", "rename", "unlink", "ftruncate", "mkdir", "open")


def fork(*arguments: str, before: Callable[[], None] | None = None) -> int:
    """Run the toy in a child process; its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if before:
                before()
            code = toy.main(*arguments)
        finally:
            os._exit(code)
    return pid


def wait(pid: int) -> int:
    """The exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def metrics(run: Path) -> list[dict]:
    return [{k: v for k, v in line.items() if k not in TIMING_FIELDS} for line in read_metrics(run)]


def finished(run: Path) -> bool:
    return (run / "card.json").exists()


def command(run: Path, options: list[str]) -> list[str]:
    """How a person would go on: resume what can be resumed, create what does not exist yet."""
    return ["resume", str(run)] if (run / "config.toml").exists() else ["create", str(run), *options]


def undisturbed(directory: Path, options: list[str]) -> tuple[list[dict], float]:
    """The metrics of a run nobody kills, and how long it takes, once everything is imported."""
    assert (
        toy.main("create", str(directory / "imports"), *options) == 0
    )  # here, so that the children have it too
    began = time.monotonic()
    assert wait(fork("create", str(directory / "whole"), *options)) == 0
    assert metrics(directory / "whole") == metrics(directory / "imports")
    return metrics(directory / "whole"), time.monotonic() - began


def at_random_moments(directory: Path, kills: int, seed: int) -> dict:
    options = ["steps=800"]
    expected, duration = undisturbed(directory, options)
    rng, killed, runs = random.Random(seed), 0, 0
    while killed < kills:
        run = directory / f"run{runs}"
        while not finished(run):
            pid = fork(*command(run, options))
            time.sleep(rng.uniform(0, 0.5) * duration)
            os.kill(pid, signal.SIGKILL)
            code = wait(pid)
            assert code in (0, -signal.SIGKILL), code
            killed += code != 0
        assert metrics(run) == expected, f"{run} differs after kills at random moments"
        runs += 1
    return {"kills": killed, "runs": runs, "lines": len(expected)}


def at_every_operation(directory: Path) -> dict:
    """Kill just before the k-th disk operation, for each k there is, then resume."""
    options = ["steps=100", "checkpoint_every=40", "eval_every=80", "buffer_size=50", "chunk=20"]
    expected, _ = undisturbed(directory, options)

    def die_at(k: int) -> Callable[[], None]:
        def install() -> None:
            count = 0

            def counted(function: Callable) -> Callable:
                def operation(*args: object, **kwargs: object) -> object:
                    nonlocal count
                    count += 1
                    if count == k:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*args, **kwargs)

                return operation

            for name in DISK_OPERATIONS:
                setattr(os, name, counted(getattr(os, name)))

        return install

    k, code = 0, -signal.SIGKILL
    while code:
        k += 1
        run = directory / f"run{k}"
        code = wait(fork(*command(run, options), before=die_at(k)))
        assert code in (0, -signal.SIGKILL), code
        if k % 3 == 0 and not finished(run):  # the resumed run is killed too, a few operations on
            assert wait(fork(*command(run, options), before=die_at(1 + k % 11))) in (0, -signal.SIGKILL)
        if not finished(run):
            assert wait(fork(*command(run, options))) == 0, f"operation {k}: not resumable"
        assert metrics(run) == expected, f"{run} differs after a kill at operation {k}"
        shutil.rmtree(run)
    return {"operations": k - 1, "lines": len(expected)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    what, where, *numbers = sys.argv[1:]
    if what == "random":
        print(json.dumps(at_random_moments(Path(where), *map(int, numbers))))
    else:
        print(json.dumps(at_every_operation(Path(where))))
