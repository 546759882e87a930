"""CPU seconds until the command line answers: help, errors, and what has to load torch.

python -P benchmarks/startup.py
"""

from __future__ import annotations

import resource
import subprocess
import sys

COMMANDS = (
    "--version",
    "--help",
    "help resume",
    "help suite run",
    "trian",
    "resume --alow-import",
    "train",
    "train dqn --help",
    "train dqn --alfa 1",
    "train dqn --env CartPol-v1 --out /dev/null/x",
    "suite list",
    "table mujoco-v4",
)
REPEATS = 3


def cpu_seconds(arguments: str) -> float:
    """User and system time of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-P", "-m", "critex.cli", *arguments.split()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    print(f"CPU seconds, the best of {REPEATS}\n")
    for command in COMMANDS:
        print(f"{min(cpu_seconds(command) for _ in range(REPEATS)):6.2f}  critex {command}", flush=True)
