"""How often the agent visited each cell of a grid, over the course of training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from critex.run.logger import next_multiple

VISITS = "visits.json"
SNAPSHOTS = 24
CELLS = 1_000_000
"""Cells of the largest grid that is counted."""


class Visits:
    """Counts the positions that an environment reports, integers [N, 1] or [N, 2], and keeps snapshots.

    `snapshots` are (step, counts so far), evenly spaced over the run. Positions that are not cells of a grid
    (real numbers, negative ones, more than two of them, beyond a million cells) are not counted.
    """

    def __init__(self) -> None:
        self._every = self._next = 1
        self.counts = torch.zeros(0, 0, dtype=torch.int64)
        self.snapshots: list[tuple[int, Tensor]] = []

    def begin(self, total: int, step: int) -> None:
        """Start counting at `step` of `total` env steps."""
        self._every = max(total // SNAPSHOTS, 1)
        self._next = next_multiple(step, self._every)

    def add(self, position: Tensor, step: int) -> None:
        """Count one visit of each of these cells; `step` env steps have been taken."""
        if position.ndim != 2 or position.shape[1] > 2 or position.is_floating_point() or position.min() < 0:
            return
        rows, columns = _cells(position)
        old = self.counts
        shape = max(int(rows.max()) + 1, old.shape[0]), max(int(columns.max()) + 1, old.shape[1])
        if shape[0] * shape[1] > CELLS:
            return
        if shape != old.shape:
            self.counts = torch.zeros(shape, dtype=torch.int64)
            self.counts[: old.shape[0], : old.shape[1]] = old
        self.counts.index_put_((rows, columns), torch.ones_like(rows), accumulate=True)
        if step >= self._next:
            self._next = next_multiple(step, self._every)
            self.snapshots.append((step, self.counts.clone()))

    def table(self, step: int) -> dict[str, Any] | None:
        """The content of visits.json after `step` env steps; None if no position was ever reported.

        The last snapshot is the final one; every snapshot has the final shape.
        """
        if not self.counts.numel():
            return None
        rows, columns = self.counts.shape

        def padded(counts: Tensor) -> list[list[int]]:
            full = torch.zeros(rows, columns, dtype=torch.int64)
            full[: counts.shape[0], : counts.shape[1]] = counts
            return full.tolist()

        earlier = [shot for shot in self.snapshots if shot[0] < step]
        shots = [{"step": at, "counts": padded(counts)} for at, counts in [*earlier, (step, self.counts)]]
        return {"shape": [rows, columns], "snapshots": shots}

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts.clone(), "snapshots": list(self.snapshots)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = state["counts"].clone()
        self.snapshots = [(int(step), counts) for step, counts in state["snapshots"]]


def _cells(position: Tensor) -> tuple[Tensor, Tensor]:
    cells = position.long()
    return (torch.zeros_like(cells[:, 0]), cells[:, 0]) if cells.shape[1] == 1 else (cells[:, 0], cells[:, 1])
