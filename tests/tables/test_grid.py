"""Cells, comparisons and their formats against answers worked out by hand."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest

from critex.results.cells import load_cells, scores
from critex.tables.formats import FORMATS, as_csv, latex, markdown, notes, sheets
from critex.tables.grid import Grid, Score

from ..report.conftest import of_method, write_run

PAPER = {("Swim", "sac"): (60.0, 35.25), ("Swim", "sac+cae"): (150.0, 5.0), ("Hop", "sac"): (1234.5, 5.0)}
PAPER["Hop", "sac+cae"] = (2469.0, 7.5)
EMPTY = Grid("A table", tuple(PAPER), {"sac+cae": "sac"}, PAPER, 5)
OURS = {
    ("Swim", "sac"): [Score(1, 40, 100), Score(2, 60, 100), Score(3, 1e6, 100)],
    ("Swim", "sac+cae"): [Score(1, 90, 100), Score(2, 110, 50, finished=False)],
}
GRID = replace(EMPTY, ours=OURS, budget=0.1)


def rows(grid: Grid) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_csv(grid))))


def test_a_cell_by_hand() -> None:
    line = GRID.rows[1]
    assert (line.task, line.method, line.unfinished) == ("Swim", "sac+cae", 1)
    assert (line.ours.mean, line.ours.n, line.difference) == (100, 2, -50)
    assert line.ours.std == pytest.approx(200**0.5)
    assert line.rpi == 100  # 100 over 50: seed 3 of the base has no partner
    assert line.paper_rpi == 150


def test_over_all_tasks_by_hand() -> None:
    (comparison,) = GRID.comparisons
    assert (comparison.tasks, comparison.pairs) == (1, 2)
    assert (comparison.rpi.value, comparison.iqm.value, comparison.probability.value) == (100, 100, 1)
    assert comparison.paper_rpi == 150  # on the task that we ran


def test_what_was_not_run_is_empty() -> None:
    cells = sheets(GRID)[0]
    assert cells.header == ["task", "method", "ours", "paper", "difference", "RPI %", "paper's RPI %"]
    assert cells.groups[1] == [
        ["Hop", "sac", "", "1,234.5 ± 5 (n=5)", "", "", ""],
        ["", "sac+cae", "", "2,469 ± 7.5 (n=5)", "", "", "+100"],
    ]
    assert cells.groups[0][1] == ["", "sac+cae", "100 ± 14 (n=2)†", "150 ± 5 (n=5)", "-50", "+100", "+150"]
    hop = rows(GRID)[2]
    assert (hop["mean"], hop["std"], hop["n"], hop["difference"], hop["rpi"]) == ("", "", "0", "", "")


def test_without_any_run() -> None:
    for name, written in FORMATS.items():
        assert "1234.5" in (text := written(EMPTY).replace(",", "")) or name == "csv", text
    assert [row["mean"] for row in rows(EMPTY)] == [""] * 4
    assert [row["paper mean"] for row in rows(EMPTY)] == ["60", "150", "1234.5", "2469"]
    assert notes(EMPTY) == ["No run of ours yet."]
    (comparison,) = EMPTY.comparisons
    assert math.isnan(comparison.rpi.value) and comparison.paper_rpi == (150 + 100) / 2


def test_budget_and_unfinished_runs_are_said_in_every_format() -> None:
    assert notes(GRID) == [
        "Budget 0.1: our runs take 0.1 × the steps of the full suite.",
        "† Not finished, and counted up to the step reached: Swim sac+cae seed 2 at step 50.",
    ]
    for name in ("terminal", "markdown", "latex"):
        text = " ".join(FORMATS[name](GRID).split())
        assert "Budget 0.1: our runs" in text
        assert "seed 2 at step 50" in text
    line = rows(GRID)[1]
    assert (line["budget"], line["unfinished"], line["seeds"]) == ("0.1", "1", "1 2")


def test_no_sign_without_its_number_of_seeds() -> None:
    for name in ("terminal", "markdown"):
        text = FORMATS[name](GRID)
        assert text.count("±") == text.count("(n=") == 6


def test_markdown() -> None:
    lines = markdown(GRID).splitlines()
    assert lines[:4] == [
        "**A table**",
        "",
        "| task | method | ours | paper | difference | RPI % | paper's RPI % |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    assert "|  | sac+cae | 100 ± 14 (n=2)† | 150 ± 5 (n=5) | -50 | +100 | +150 |" in lines


def test_latex_is_escaped() -> None:
    text = latex(replace(GRID, title="50 % of A_B & C"))
    assert r"\caption{50 \% of A\_B \& C}" in text
    assert (
        r" & sac+cae & 100 $\pm$ 14 (n=2)\textdagger{} & 150 $\pm$ 5 (n=5) & $-$50 & +100 & +150 \\" in text
    )
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert text.isascii()


def test_columns_that_would_be_empty_are_left_out() -> None:
    plain = replace(GRID, paper={}, baseline_of={})
    assert [sheet.header for sheet in sheets(plain)] == [["task", "method", "ours"]]


# From a directory -----------------------------------------------------------------------------------------


def test_cells_of_a_directory(tmp_path: Path) -> None:
    for method, seed, values in (("dqn", 1, [3]), ("dqn", 10, [1, 2]), ("dqn+cae", 2, [5])):
        where = tmp_path / "Swim-v0" / method / f"seed-{seed}"
        write_run(where, values, env="Swim-v0?deep=true", seed=seed, **of_method(method))
    (tmp_path / "Swim-v0" / "dqn" / "seed-1.log").write_text("words")
    problems: list[str] = []
    wanted = [(task, method) for task in ("Swim-v0", "Hop-v0") for method in ("dqn", "dqn+cae")]
    cells = load_cells(tmp_path, wanted, problems)
    assert {cell: [run.seed for run in runs] for cell, runs in cells.items()} == {
        ("Swim-v0", "dqn"): [1, 10],
        ("Swim-v0", "dqn+cae"): [2],
    }
    found = scores(cells, "episodes", problems)
    assert found["Swim-v0", "dqn"] == [Score(1, 3, 10), Score(10, 1.5, 20)]
    assert scores(cells, "parameters", problems)["Swim-v0", "dqn"][0].value == 1000
    assert problems == []
    assert load_cells(tmp_path / "nothing", wanted, problems) == {}


def test_a_cell_that_mixes_two_settings_is_named(tmp_path: Path) -> None:
    for seed, every in ((1, 10), (2, 20)):
        write_run(tmp_path / "Swim" / "dqn" / f"seed-{seed}", [1], env="Swim", seed=seed, eval_every=every)
    problems: list[str] = []
    load_cells(tmp_path, [("Swim", "dqn")], problems)
    assert problems == [f"{tmp_path}/Swim/dqn mixes runs that differ in eval_every: their mean says little"]


def test_the_broken_is_named_and_the_rest_counted(tmp_path: Path) -> None:
    cell = tmp_path / "Swim" / "dqn"
    for seed in range(1, 6):
        write_run(cell / f"seed-{seed}", [seed] * 2, env="Swim", seed=seed, finish=seed != 3)
    with (cell / "seed-1" / "metrics.jsonl").open("a") as file:
        file.write("{")
    (cell / "seed-2" / "metrics.jsonl").unlink()
    (cell / "seed-4").rename(cell / "seed-04")
    write_run(cell / "seed-4", [9], env="Swim", seed=5)
    write_run(cell / "seed-7", [9], env="Sink", seed=7)
    write_run(cell / "seed-71", [9], env="Swim", seed=71, explorer="cae")
    write_run(cell / "seed-72", [9], env="Swim", seed=72, algorithm="sac")
    (cell / "seed-8").mkdir()
    problems: list[str] = []
    found = scores(load_cells(tmp_path, [("Swim", "dqn")], problems), "episodes", problems)
    assert found["Swim", "dqn"] == [
        Score(1, 1, 20),
        Score(3, 3, 20, finished=False),
        Score(4, 4, 20),
        Score(5, 9, 10),
    ]
    assert problems == [
        f"{cell}/seed-1/metrics.jsonl, line 3 is broken: not JSON; read without",
        f"cannot read {cell}/seed-2/metrics.jsonl: No such file or directory; left out",
        f"{cell}/seed-3 is not finished: its numbers are those up to step 20",
        f"{cell}/seed-5 repeats seed 5 of {cell}/seed-4; left out",
        f"{cell}/seed-7 is a run of Sink, not of Swim; left out",
        f"{cell}/seed-71 is a run of dqn+cae, not of dqn; left out",
        f"{cell}/seed-72 is a run of sac, not of dqn; left out",
        f"{cell}/seed-8 is not a run directory: it has no config.toml; left out",
    ]


def test_scores_of_evaluations(tmp_path: Path) -> None:
    cell = tmp_path / "Swim" / "dsac"
    options = {"env": "Swim", "algorithm": "dsac"}
    write_run(cell / "seed-1", [1] * 20, evaluations=range(20), seed=1, **options)
    write_run(cell / "seed-2", [1], seed=2, finish=False, **options)
    write_run(cell / "seed-3", [1] * 20, evaluations=range(20), seed=3, stop_return=19.0, **options)
    write_run(cell / "seed-4", [1], evaluations=[math.nan], seed=4, **options)
    problems: list[str] = []
    found = scores(load_cells(tmp_path, [("Swim", "dsac")], problems), "evaluations", problems)
    assert [score.value for score in found["Swim", "dsac"]] == [18.5, 19]  # 18 and 19; the one that ended it
    assert problems == [
        f"{cell}/seed-2 is not finished: its numbers are those up to step 10",
        f"{cell} mixes runs that differ in stop_return: their mean says little",
        f"{cell}/seed-2 has no evaluations yet and cannot be scored; left out of the table",
        f"{cell}/seed-4 has no evaluations that give a number and cannot be scored; left out of the table",
    ]
