"""A run that is killed, again and again, writes what a run that was never killed writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).with_name("kills.py")


def kills(*arguments: str | Path) -> dict:
    process = subprocess.run([sys.executable, KILLS, *map(str, arguments)], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.slow
def test_sigkill_at_random_moments(tmp_path: Path) -> None:
    done = kills("random", tmp_path, 8, 0)
    assert done["kills"] >= 8
    assert done["lines"] > 50


@pytest.mark.slow
def test_sigkill_before_every_disk_operation(tmp_path: Path) -> None:
    done = kills("operations", tmp_path)
    assert done["operations"] > 40
    assert done["lines"] > 5
