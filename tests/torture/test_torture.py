"""A short version of `make torture`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).with_name("torture.py")


@pytest.mark.slow
def test_a_short_attack_finds_nothing() -> None:
    names = ("kills", "files", "inputs", "arrays")
    command = [sys.executable, str(TORTURE), "--scale", "0.03", "--seed", "1", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"| {name}" in done.stdout for name in names)
