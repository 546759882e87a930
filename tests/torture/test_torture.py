"""A short version of `make torture`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).with_name("torture.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scale"), [("kills", 0.05), ("files", 0.05), ("inputs", 0.02), ("arrays", 0.1)]
)
def test_a_short_attack_finds_nothing(name: str, scale: float) -> None:
    command = [sys.executable, str(TORTURE), "--scale", str(scale), "--seed", "1", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| {name}" in done.stdout
