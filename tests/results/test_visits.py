"""Visit counts of several seeds at common steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critex.results.visits import VisitHistory, frame_steps, mean_visits, read_visits


def visits(steps: list[int], counts: list[int]) -> VisitHistory:
    """One row of two cells: (count, 0) at each step."""
    table = np.array([[[float(c), 0.0]] for c in counts])
    return VisitHistory(np.array(steps, dtype=float), table, (table > 0).sum(axis=(1, 2)).astype(float))


def test_a_seed_counts_with_its_last_snapshot() -> None:
    a, b = visits([10, 20], [1, 3]), visits([15], [5])
    steps = frame_steps([a, b])
    assert steps.tolist() == [10, 15, 20]
    mean = mean_visits([a, b], steps)
    assert mean.counts[:, 0, 0].tolist() == [0.5, 3, 4]  # (1 + 0)/2, (1 + 5)/2, (3 + 5)/2
    assert mean.counts[:, 0, 1].tolist() == [0, 0, 0]
    assert mean.visited.tolist() == [0.5, 1, 1]


def test_frames_are_thinned_evenly_and_keep_both_ends() -> None:
    steps = frame_steps([visits(list(range(1, 1002)), [1] * 1001)], frames=5)
    assert steps.tolist() == [1, 251, 501, 751, 1001]


def test_read(tmp_path: Path) -> None:
    assert read_visits(tmp_path, []) is None
    snapshots = [{"step": 5, "counts": [[1, 0], [2, 3]]}]
    (tmp_path / "visits.json").write_text(json.dumps({"shape": [2, 2], "snapshots": snapshots}))
    problems: list[str] = []
    read = read_visits(tmp_path, problems)
    assert read is not None
    assert read.counts.tolist() == [[[1, 0], [2, 3]]]
    assert read.visited.tolist() == [3]
    assert problems == []


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "Expecting property name"),
        ({"snapshots": []}, "'shape' is missing"),
        ({"shape": [1, 1], "snapshots": []}, "its counts have shape [0]"),
        ({"shape": [1, 2], "snapshots": [{"step": 1, "counts": [[1]]}]}, "its counts have shape [1, 1, 1]"),
        ({"shape": [1, 1], "snapshots": [{"step": 2, "counts": [[1]]}] * 2}, "steps must increase"),
        ({"shape": [1, 1], "snapshots": [{"step": 1, "counts": [[-1]]}]}, "counts must not be negative"),
        ([1], "list indices"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, document: Any, reason: str) -> None:
    path = tmp_path / "visits.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    problems: list[str] = []
    assert read_visits(tmp_path, problems) is None
    assert len(problems) == 1
    assert problems[0].startswith(f"{path} is broken: ")
    assert reason in problems[0]
