"""Visits are counted, snapshots kept, and both survive a checkpoint."""

from __future__ import annotations

import torch

from critex.run.visits import SNAPSHOTS, Visits


def test_counts_and_snapshots() -> None:
    visits = Visits()
    visits.begin(total=SNAPSHOTS, step=0)
    assert visits.table(0) is None
    for step in range(1, 4):
        visits.add(torch.tensor([[step, 0], [0, 1]]), step)
    table = visits.table(3)
    assert table is not None and table["shape"] == [4, 2]
    assert [shot["step"] for shot in table["snapshots"]] == [1, 2, 3]
    assert table["snapshots"][0]["counts"] == [[0, 1], [1, 0], [0, 0], [0, 0]]
    assert table["snapshots"][2]["counts"] == [[0, 3], [1, 0], [1, 0], [1, 0]]


def test_the_same_cell_twice_in_one_step_counts_twice() -> None:
    visits = Visits()
    visits.begin(10, 0)
    visits.add(torch.tensor([[2], [2]]), 1)
    assert visits.counts.tolist() == [[0, 0, 2]]


def test_state_round_trip() -> None:
    one, two = Visits(), Visits()
    for step in range(1, 6):
        one.begin(48, step - 1)
        one.add(torch.tensor([[step, 1]]), step)
    two.load_state_dict(one.state_dict())
    two.begin(48, 5)
    for visits in (one, two):
        visits.begin(48, 5)
        for step in range(6, 9):
            visits.add(torch.tensor([[0, step]]), step)
    assert one.table(8) == two.table(8)


def test_the_end_is_the_last_snapshot_wherever_it_comes() -> None:
    visits = Visits()
    visits.begin(total=100 * SNAPSHOTS, step=0)
    visits.add(torch.tensor([[0, 1]]), 1)
    table = visits.table(7)
    assert table is not None and table["snapshots"] == [{"step": 7, "counts": [[0, 1]]}]


def test_positions_that_are_no_cells_are_not_counted() -> None:
    visits = Visits()
    visits.begin(10, 0)
    for position in ([[0.5, 1.5]], [[-1, 2]], [[1, 2, 3]], [[[1]]], [[10**10]], [[2000, 2000]]):
        visits.add(torch.tensor(position), 1)
    assert visits.table(1) is None
