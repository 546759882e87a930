"""Costs and panels of a suite against answers worked out by hand."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from critex.report.panels import panel_rows, panels
from critex.report.suite_view import cards, clocks, suite_view
from critex.results.cells import Cells, load_cells
from critex.tables.grid import Grid

from .conftest import of_method, write_run

CELLS = tuple((task, method) for task in ("Swim", "Hop") for method in ("sac", "sac+cae", "td3"))
GRID = Grid("A suite", CELLS, {"sac+cae": "sac"})


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    """Ten steps a run. SAC takes 2 and 4 s on Swim and 6 s on Hop, with CAE 6 s and 12 s."""
    seconds = {("Swim", "sac", 1): 2, ("Swim", "sac", 2): 4, ("Swim", "sac+cae", 1): 6}
    seconds |= {("Hop", "sac", 1): 6, ("Hop", "sac+cae", 1): 12}
    for (task, method, seed), time in seconds.items():
        where = tmp_path / "runs" / task / method / f"seed-{seed}"
        run = write_run(where, [seed], env=task, seed=seed, **of_method(method))
        card = json.loads((run / "card.json").read_text())
        card["parameters_added"] = 5 if task == "Hop" else 3
        card["totals"]["seconds"] = time
        (run / "card.json").write_text(json.dumps(card))
    unfinished = tmp_path / "runs" / "Hop" / "sac" / "seed-2"
    write_run(unfinished, [2], env="Hop", seed=2, finish=False, **of_method("sac"))
    return load_cells(tmp_path / "runs", CELLS, [])


def test_wall_clock(cells: Cells) -> None:
    found = {(c.task, c.method): c for c in clocks(GRID, cells)}
    assert (found["Swim", "sac"].ms, found["Swim", "sac"].hours) == (300, pytest.approx(3 / 3600))
    assert found["Swim", "sac+cae"].ratio == 2  # 600 over 300 ms
    assert (found["Hop", "sac"].ms, found["Hop", "sac+cae"].ratio) == (600, 2)  # of what is finished
    assert math.isnan(found["Swim", "sac"].ratio)
    assert math.isnan(found["Hop", "td3"].ms)


def test_cards(cells: Cells) -> None:
    sac, cae, td3 = cards(GRID, cells, clocks(GRID, cells))
    assert (sac["label"], sac["runs"], td3["runs"]) == ("sac", 3, 0)
    assert sac["costs"]["Parameters added"] == "3 – 5"
    assert sac["costs"]["Wall clock, per step"] == "300 – 600 ms"
    assert sac["costs"]["Hours, all runs"] == "0.003333"  # 12 s
    assert "Wall clock over sac" not in sac["costs"]
    assert cae["costs"]["Wall clock over sac"] == "× 2"
    assert cae["costs"]["Parameters of the agent"] == "1,000"


def test_panels_keep_the_colours_of_methods(cells: Cells) -> None:
    del cells["Hop", "sac"]
    shown = panels(GRID, cells, "return")
    assert [(p.task, p.base, list(p.figure.curves)) for p in shown] == [
        ("Swim", "sac", [0, 1]),
        ("Hop", "sac", [1]),
    ]
    header, *rows = panel_rows(shown)
    assert header == ["task", "method", "step", "mean", "std", "n", "seed 1", "seed 2"]
    assert rows[0][:2] == ["Swim", "sac"]
    assert rows[-1] == ["Hop", "sac+cae", "10", "1", "", "1", "1", ""]


def test_files_and_links(cells: Cells, tmp_path: Path) -> None:
    out = tmp_path / "report"
    out.mkdir()
    view: dict[str, Any] = suite_view(GRID, cells, "return", out)
    assert view["links"][0] == (
        "Swim", "sac", [(1, "../runs/Swim/sac/seed-1", True), (2, "../runs/Swim/sac/seed-2", True)]
    )  # fmt: skip
    assert (2, "../runs/Hop/sac/seed-2", False) in view["links"][2][2]
    with (out / "costs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[1] == {
        "task": "Swim", "method": "sac+cae", "ms per step": "600", "over base": "2", "hours": "0.001666666667",
        "parameters": "1000", "parameters added": "3",
    }  # fmt: skip
    assert rows[2]["ms per step"] == ""
