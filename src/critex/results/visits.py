"""visits.json: how often each cell of a grid was visited in the course of training.

    {"shape": [rows, cols], "snapshots": [{"step": 1000, "counts": [[…], …]}, …]}

Counts are cumulative, and snapshots are ordered by step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from critex.results.stats import Floats
from critex.run.visits import VISITS

FRAMES = 60


@dataclass(frozen=True)
class VisitHistory:
    """Cumulative visit counts of one run, or their mean over several runs."""

    steps: Floats  # [F]
    counts: Floats  # [F, rows, cols]
    visited: Floats  # [F], number of cells visited so far


def read_visits(run: Path, problems: list[str]) -> VisitHistory | None:
    """The visits of a run; None if it recorded none or the file is broken, which `problems` then reports."""
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
            raise ValueError("steps must increase from snapshot to snapshot, and counts must not be negative")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        problems.append(f"{path} is broken: {what}; read without")
        return None
    return VisitHistory(steps, counts, (counts > 0).sum(axis=(1, 2)).astype(np.float64))


def frame_steps(runs: Sequence[VisitHistory], frames: int = FRAMES) -> Floats:
    """Steps [F] at which these runs are shown side by side: those of all their snapshots, thinned evenly."""
    union = np.unique(np.concatenate([visits.steps for visits in runs]))
    kept: Floats = union[np.unique(np.linspace(0, union.size - 1, frames).round().astype(int))]
    return kept


def mean_visits(runs: Sequence[VisitHistory], steps: Floats) -> VisitHistory:
    """Means over seeds at these steps [F]; a seed contributes its last snapshot up to that step, or 0."""

    def at_steps(values: Floats, visits: VisitHistory) -> Floats:
        padded: Floats = np.concatenate([np.zeros_like(values[:1]), values])
        index = np.searchsorted(visits.steps, steps, side="right")
        return np.take(padded, index, axis=0)

    counts = np.mean([at_steps(visits.counts, visits) for visits in runs], axis=0)
    visited = np.mean([at_steps(visits.visited, visits) for visits in runs], axis=0)
    return VisitHistory(steps, counts, visited)
