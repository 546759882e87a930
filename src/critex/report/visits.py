"""visits.json: how often each cell of a grid-like task was visited, over training.

    {"shape": [rows, cols], "snapshots": [{"step": 1000, "counts": [[…], …]}, …]}

Counts are cumulative; snapshots come in the order of their steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from critex.report.stats import Floats

VISITS = "visits.json"
FRAMES = 60


@dataclass(frozen=True)
class Visits:
    """Cumulative visit counts of one run, or their mean over several."""

    steps: Floats  # [F]
    counts: Floats  # [F, rows, cols]
    visited: Floats  # [F], number of cells visited so far


def read_visits(run: Path, problems: list[str]) -> Visits | None:
    """The visits of a run; None where there is no such file, or a broken one, which `problems` then names."""
    path = run / VISITS
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        rows, cols = document["shape"]
        snapshots = document["snapshots"]
        steps = np.array([snapshot["step"] for snapshot in snapshots], dtype=np.float64)
        counts = np.array([snapshot["counts"] for snapshot in snapshots], dtype=np.float64)
        if not snapshots or counts.shape != (len(steps), rows, cols):
            raise ValueError(f"its counts have shape {list(counts.shape)}, not [snapshots, {rows}, {cols}]")
        if not (np.diff(steps) > 0).all() or not (counts >= 0).all():
            raise ValueError("steps must rise from snapshot to snapshot, and counts be at least 0")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        problems.append(f"{path} is broken: {what}; read without")
        return None
    return Visits(steps, counts, (counts > 0).sum(axis=(1, 2)).astype(np.float64))


def frame_steps(runs: Sequence[Visits], frames: int = FRAMES) -> Floats:
    """Steps [F] of the frames that show these runs side by side: all their snapshots, thinned evenly."""
    union = np.unique(np.concatenate([visits.steps for visits in runs]))
    kept: Floats = union[np.unique(np.linspace(0, union.size - 1, frames).round().astype(int))]
    return kept


def mean_visits(runs: Sequence[Visits], steps: Floats) -> Visits:
    """Means over seeds at these steps [F]; each seed counts with its last snapshot up to there, or with 0."""

    def at_steps(values: Floats, visits: Visits) -> Floats:
        padded: Floats = np.concatenate([np.zeros_like(values[:1]), values])
        index = np.searchsorted(visits.steps, steps, side="right")
        return np.take(padded, index, axis=0)

    counts = np.mean([at_steps(visits.counts, visits) for visits in runs], axis=0)
    visited = np.mean([at_steps(visits.visited, visits) for visits in runs], axis=0)
    return Visits(steps, counts, visited)
