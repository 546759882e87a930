"""The tables of the paper and of our suites, from `critex table` and `critex report`."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import pytest

from critex.cli import main
from critex.results.stats import rpi
from critex.suite.suites import SUITES
from critex.tables import table_named
from critex.tables.formats import latex
from critex.tables.paper import paper_parameters, paper_table

from ..report.conftest import write_run

TABLES = [*SUITES, "minihack", "habitat", "parameters"]


def half_a_digit(value: float) -> float:
    """Half a unit of the last digit that the paper prints: the third, or the second after the point."""
    return max(0.5 * 10 ** (math.floor(math.log10(abs(value))) - 2), 0.005)


@pytest.mark.parametrize("name", ["mujoco-v4", "mujoco-dsac", "minihack", "habitat"])
def test_every_improvement_that_the_paper_prints(name: str) -> None:
    table, grid = paper_table(name), table_named(name).grid
    assert table.rpi
    computed = {(line.task, line.method): line.paper_rpi for line in grid.rows}
    for (task, method), printed in table.rpi.items():
        base = table.scores[task, grid.baseline_of[method]]
        assert rpi(table.scores[task, method][0], base[0]) == pytest.approx(
            printed, abs=half_a_digit(printed)
        )
        assert computed[task, method] == pytest.approx(printed, abs=half_a_digit(printed))
    means = {comparison.method: comparison.paper_rpi for comparison in grid.comparisons}
    for method, printed in table.rpi_mean.items():
        assert means[method] == pytest.approx(printed, abs=half_a_digit(printed))


def test_baselines() -> None:
    """DQN with another optimiser is compared with DQN, as DQN with an explorer is."""
    base = table_named("deepsea").grid.baseline_of
    assert set(base.values()) == {"dqn"} and {"dqn+cae", "dqn+cae-thompson", "dqn-langevin"} <= base.keys()
    assert table_named("visual").grid.baseline_of["reference-wall"] == "ppo_recurrent"


def test_latex_needs_no_unicode() -> None:
    for name in TABLES:
        assert latex(table_named(name).grid).isascii(), name
    assert r"Automatic $\alpha$ (-{}-alpha auto)" in latex(table_named("alpha").grid)


def test_table_2_in_percent() -> None:
    table = table_named("parameters")
    percent = {line.method: line.paper_rpi for line in table.grid.rows}
    printed = paper_parameters().percent
    assert {f"impala+{explorer}" for explorer in printed} <= percent.keys()
    for explorer, value in printed.items():
        assert percent[f"impala+{explorer}"] == pytest.approx(value, abs=0.5 if value > 1 else 0.05)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_without_a_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["table", name, "--runs", str(tmp_path), "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    grid = table_named(name).grid
    assert [(row["task"], row["method"]) for row in rows] == list(grid.cells)
    assert {row["mean"] for row in rows} == {""}  # never filled
    assert sum(row["paper mean"] != "" for row in rows) == len(grid.paper)
    main(["table", name])
    printed = capsys.readouterr().out
    assert "No run of ours yet." in printed and "not shown" not in printed
    assert (f"critex suite run {name}" in printed) == (name in SUITES)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two seeds of SAC and one of SAC with CAE on one task of the scaling ablation, at a tenth of the budget."""
    directory = tmp_path / "runs"
    for method, seed, values in (("sac", 1, [50, 70]), ("sac", 2, [70, 90]), ("sac+cae", 2, [100, 140])):
        explorer = method.partition("+")[2] or "none"
        where = directory / "Swimmer-v4" / method / f"seed-{seed}"
        write_run(
            where,
            values,
            env="Swimmer-v4",
            seed=seed,
            algorithm="sac",
            explorer=explorer,
            finish=method == "sac",
        )
    manifest = 'suite = "mujoco-scaling-ablation"\nversion = 1\nbudget = 0.1\n'
    (directory / "suite.toml").write_text(manifest)
    return directory


def test_ours_beside_the_papers(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["table", "mujoco-scaling-ablation", "--runs", str(runs)])
    out, err = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "Swimmer-v4 sac 70 ± 14 (n=2) 61 ± 35.2 (n=5) +9" in lines
    assert "sac+cae 120 (n=1)† 161 ± 26.9 (n=5) -41 +50 +164" in lines  # over seed 2 of SAC, which is at 80
    assert "sac+cae-unscaled" not in lines  # neither we nor the paper have a number
    assert "2 of 6 cells have no run yet and are not shown." in lines
    assert "sac+cae sac 1 of 2 1 50 +164 50 1" in lines  # on the task that we ran
    assert "Budget 0.1: our runs take 0.1 × the steps of the full suite." in lines
    assert any(line.startswith("† Not finished") and "sac+cae seed 2 at step 20" in line for line in lines)
    assert err == f"{runs}/Swimmer-v4/sac+cae/seed-2 is not finished: its numbers are those up to step 20\n"


def test_wall_clock_beside_the_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, method = "MiniHack-MultiRoom-N4-v0", "impala+cae"
    for seed, hours in ((1, 1.0), (2, 2.0), (3, None)):
        where = tmp_path / task / method / f"seed-{seed}"
        write_run(where, [1], env=task, seed=seed, algorithm="impala", explorer="cae", finish=bool(hours))
        if hours:
            card = json.loads((where / "card.json").read_text())
            card["totals"]["seconds"] = 3600 * hours
            (where / "card.json").write_text(json.dumps(card))
    (tmp_path / "suite.toml").write_text('suite = "minihack"\nversion = 2\nbudget = 1.0\n')
    main(["table", "minihack", "--runs", str(tmp_path)])
    line = "Wall clock of a run, paper: impala+cae 17 h, impala+e3b 22 h; ours: impala+cae 1.5 h (n=2)."
    assert line in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("file", "begins"),
    [("t.md", "**mujoco-scaling"), ("t.tex", "% needs"), ("t.csv", "task,"), ("t.txt", "mujoco-")],
)
def test_files(file: str, begins: str, runs: Path, tmp_path: Path) -> None:
    main(["table", "mujoco-scaling-ablation", "--runs", str(runs), "--out", str(tmp_path / "new" / file)])
    assert (tmp_path / "new" / file).read_text().startswith(begins)


def test_curves(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["table", "mujoco-scaling-ablation", "--runs", str(runs), "--format", "csv", "--curves"]
    for suffix, begins in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
        path = tmp_path / f"curves{suffix}"
        main([*flags, str(path)])
        assert path.read_bytes().startswith(begins)
    with (tmp_path / "curves.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        "task": "Swimmer-v4", "method": "sac", "step": "10", "mean": "60", "std": "14.14213562", "n": "2",
        "seed 1": "50", "seed 2": "70",
    }  # fmt: skip
    assert [row["method"] for row in rows] == ["sac", "sac", "sac+cae", "sac+cae"]


def test_a_broken_line_is_named_and_the_rest_counted(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (runs / "Swimmer-v4/sac/seed-1/metrics.jsonl").open("a") as file:
        file.write("{")
    main(["table", "mujoco-scaling-ablation", "--runs", str(runs)])
    out, err = capsys.readouterr()
    assert "70 ± 14 (n=2)" in out
    assert "seed-1/metrics.jsonl, line 3 is broken: not JSON; read without" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["mujoco-v44"], "unknown table 'mujoco-v44'; did you mean mujoco-v4"),
        (
            ["mujoco-v4", "--runs", "RUNS"],
            "holds runs of the suite mujoco-scaling-ablation; the table mujoco-v4 needs runs of",
        ),
        (
            ["minihack", "--runs", "RUNS"],
            "holds runs of the suite mujoco-scaling-ablation; the table minihack needs runs of",
        ),
        (["mujoco-v4", "--curves", "a.png"], "there are no runs to draw curves of yet"),
        (["parameters", "--curves", "a.png"], "counts parameters and has no curves"),
        (["mujoco-v4", "--curves", "a.png", "--out", "a.csv"], "give --out another name"),
        (["mujoco-v4", "--out", "a.html"], "written as .md, .tex, .csv or .txt"),
        (["mujoco-v4", "--curves", "a.jpg"], "written as .png or .svg, not as a.jpg"),
        (["mujoco-v4", "--curves", ""], "written as .png or .svg, not as ."),
        (["mujoco-v4", "--runs", "OTHER"], "no suite.toml"),
        (
            ["mujoco-v4", "--runs", "nowhere"],
            "nowhere does not exist; run it with: critex suite run mujoco-v4",
        ),
        (["mujoco-v4", "--runs", "OLD"], "version 0 of mujoco-v4"),
        (["mujoco-v4", "--format", "word"], "format"),
    ],
)
def test_bad_input(
    args: list[str], message: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, old = tmp_path / "other", tmp_path / "old"
    for directory in (other, old):
        directory.mkdir()
    (other / "words.txt").write_text("")
    (old / "suite.toml").write_text('suite = "mujoco-v4"\nversion = 0\nbudget = 1.0\n')
    places = {"RUNS": str(runs), "OTHER": str(other), "OLD": str(old)}
    with pytest.raises(SystemExit) as stop:
        main(["table", *(places.get(arg, arg) for arg in args)])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_the_report_of_a_suite(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(runs), "--out", str(tmp_path / "report")])
    out = capsys.readouterr().out
    assert "70 ± 14 (n=2)" in out
    assert out.endswith(f"report: {tmp_path}/report/index.html\n")
    written = {path.name for path in (tmp_path / "report").iterdir()}
    assert {
        "table.csv",
        "table.md",
        "table.tex",
        "curves.png",
        "curves.svg",
        "curves.csv",
        "costs.csv",
    } < written
    page = (tmp_path / "report" / "index.html").read_text()
    links = re.findall(r'href="([^"]*/seed-\d+/)"', page)
    assert len(links) == 3
    for link in links:
        assert ((tmp_path / "report") / link / "config.toml").is_file()
    with pytest.raises(SystemExit):
        main(["report", str(runs), str(runs / "Swimmer-v4"), "--out", str(tmp_path / "b")])
    assert "give only its directory" in capsys.readouterr().err


def test_the_report_of_a_suite_that_has_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "suite.toml").write_text('suite = "mujoco-v4"\nversion = 2\nbudget = 1.0\n')
    main(["report", str(runs), "--out", str(tmp_path / "report")])
    page = (tmp_path / "report" / "index.html").read_text()
    assert "No run of ours yet." in page
    assert "2,503 ± 786.6 (n=5)" in page


def test_no_report_of_another_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suite, version, message in (
        ("mujoco-v4", 0, "version 0 of mujoco-v4"),
        ("mujoco-v44", 1, "'mujoco-v44'"),
    ):
        (tmp_path / "suite.toml").write_text(f'suite = "{suite}"\nversion = {version}\nbudget = 1.0\n')
        with pytest.raises(SystemExit) as stop:
            main(["report", str(tmp_path), "--out", str(tmp_path / "report")])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
