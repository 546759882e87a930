"""From run directories to a report directory, and what is said about those that are no good."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from critex.errors import UserError
from critex.report import write_report
from critex.report.figures import curve_figures, new_figure, plot_curves
from critex.results import FinalScore, final_score_of, group, load_runs
from critex.results.formatting import interval, spread, text
from critex.results.stats import Summary
from critex.tables.scores import score_table

from .conftest import MakeRun, Options

nan = float("nan")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def data_of(index: Path) -> Any:
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', index.read_text(), re.DOTALL
    )
    assert found
    return json.loads(found[1])


def test_every_figure_has_a_csv_and_a_png(demo_runs: list[Path], tmp_path: Path) -> None:
    result = write_report(demo_runs, tmp_path / "report")
    assert result.problems == []
    names = {path.name.removeprefix("DeepSea-8-v0-") for path in result.index.parent.iterdir()}
    figures = {"return", "evaluation", "bonus", "bonus_raw", "visits"}
    tables = {"scores.csv", "costs.csv"}
    assert names == {"index.html"} | {f"{f}.{e}" for f in figures for e in ("csv", "png")} | tables
    for png in result.index.parent.glob("*.png"):
        assert png.read_bytes().startswith(b"\x89PNG\r\n")


def test_the_page_needs_no_network(demo_runs: list[Path], tmp_path: Path) -> None:
    page = write_report(demo_runs, tmp_path / "report").index.read_text()
    links = re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', page)
    assert all(link == "data:," or link.startswith(("#", "DeepSea-8-v0-")) for link in links)
    assert "url(" not in page
    assert "@import" not in page
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {
        "http://www.w3.org/2000/svg"
    }  # a name, not fetched


def test_numbers_on_the_page_and_beside_it(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [
        make_run("a", [0, 2], seed=0, evaluations=[1, 5]),
        make_run("b", [4, 4], seed=1, evaluations=[1, 7]),
    ]
    result = write_report(runs, tmp_path / "report")
    curve = data_of(result.index)["sections"][0]["curves"]["return"]
    assert curve["x"] == [10, 20]
    (series,) = curve["series"]
    assert series["mean"] == [2, 3]
    assert series["std"] == pytest.approx([8**0.5, 2**0.5], rel=1e-5)
    assert series["n"] == [2, 2]
    assert series["seeds"] == [[0, 2], [4, 4]]
    table = rows(result.index.parent / "DeepSea-8-v0-return.csv")
    assert table[1] == {
        "method": "dqn",
        "step": "20",
        "mean": "3",
        "std": "1.414213562",
        "n": "2",
        "seed 0": "2",
        "seed 1": "4",
    }
    (score,) = rows(result.index.parent / "DeepSea-8-v0-scores.csv")
    assert (score["mean"], score["n"], score["evaluation mean"], score["seeds"]) == ("2.5", "2", "6", "0 1")
    (cost,) = rows(result.index.parent / "DeepSea-8-v0-costs.csv")
    assert (cost["parameters"], cost["bytes"], cost["bonus_us_per_step"], cost["runs"]) == (
        "1000",
        "4096",
        "12.5",
        "2",
    )
    page = result.index.read_text()
    assert "2.5 ± 2.1 (n=2)" in page
    assert "[1.0, 4.0]" in page
    assert "4 KiB" in page


def test_runs_that_stop_at_their_goal(make_run: MakeRun, tmp_path: Path) -> None:
    """A seed that is done keeps its last evaluation, or the mean would fall to that of the seeds that are not."""
    options = {"steps": 40, "stop_return": 1.0}
    done = make_run("a", [0, 0], evaluations=[0, 1], seed=0, **options)
    late = make_run("b", [0, 0, 0, 0], evaluations=[0, 0, 0, 0], seed=1, **options)
    result = write_report([done, late], tmp_path / "report")
    curves = data_of(result.index)["sections"][0]["curves"]
    (evaluation,), (training,) = (curves[key]["series"] for key in ("evaluation", "return"))
    assert evaluation["mean"] == [0, 0.5, 0.5, 0.5] and evaluation["n"] == [2, 2, 2, 2]
    assert training["n"] == [2, 2, 1, 1], "there are no episodes to carry"
    page = result.index.read_text()
    assert page.count("A run that stopped at its goal keeps its last evaluation to the end.") == 1
    assert re.findall(r'<th scope="col">([^<]*(?:evaluation|episodes))</th>', page) == [
        "Last evaluation",
        "Return, last 100 episodes",
    ]
    assert [column.header for column in score_table(result.scores).columns] == [
        "method",
        "last evaluation",
        "95 % interval",
        "return, last 100 episodes",
    ]
    methods = group(load_runs([done, late], []), [])
    for figure in curve_figures(methods):
        axes = new_figure(1, 1).subplots()
        plot_curves(axes, figure, methods)
        (label,) = axes.get_legend_handles_labels()[1]
        assert label == ("dqn (n=1–2)" if figure.key == "return" else "dqn (n=2)")


@pytest.mark.parametrize("why", ["unfinished", "no goal", "to the last step"])
def test_other_runs_are_not_carried(why: str, make_run: MakeRun, tmp_path: Path) -> None:
    goal = None if why == "no goal" else 1.0
    steps = 20 if why == "to the last step" else 40
    short = make_run(
        "a", [0, 0], evaluations=[0, 1], finish=why != "unfinished", steps=steps, stop_return=goal, seed=0
    )
    long = make_run("b", [0] * 4, evaluations=[0] * 4, steps=steps, stop_return=goal, seed=1)
    index = write_report([short, long], tmp_path / "report").index
    (evaluation,) = data_of(index)["sections"][0]["curves"]["evaluation"]["series"]
    assert evaluation["n"] == [2, 2, 1, 1] and "stopped at its goal" not in index.read_text()


def test_configurations_side_by_side(make_run: MakeRun, tmp_path: Path) -> None:
    a = make_run("a", [0], explorer="cae", bonus=Options())
    b = make_run("b", [0], explorer="cae", bonus=Options("thompson"))
    page = write_report([a, b], tmp_path / "report").index.read_text()
    marked = re.findall(r'<tr class="differs"><th scope="row">(\S+).*?<td>(\w+)</td><td>(\w+)</td>', page)
    assert marked == [("bonus.strategy", "ucb", "thompson")]
    assert re.search(r'<tr><th scope="row">alpha</th><td>0.1</td><td>0.1</td>', page)


def test_a_section_for_each_environment(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run(n, [1], env=env) for n, env in (("a", "ALE/Pong-v5"), ("b", "ALE Pong-v5"))]
    index = write_report(runs, tmp_path / "report").index
    assert re.findall(r'<section id="(.*?)"', index.read_text()) == ["ALE-Pong-v5", "ALE-Pong-v5-2"]
    assert {path.name for path in index.parent.glob("*.png")} == {
        "ALE-Pong-v5-return.png",
        "ALE-Pong-v5-2-return.png",
    }


def test_a_directory_of_runs_stands_for_its_runs(make_run: MakeRun, tmp_path: Path) -> None:
    paths = [make_run(f"all/{'a/b/c/d/' * seed}{seed}", [1], seed=seed) for seed in range(3)]
    make_run("all/0/copies/9", [1], seed=9)  # inside of a run
    (tmp_path / "all" / "a" / "loop").symlink_to(tmp_path / "all")
    problems: list[str] = []
    (method,) = group(
        load_runs([tmp_path / "all", paths[0]], problems), []
    )  # what is named twice counts once
    assert method.seeds == [0, 1, 2] and not problems


def test_everything_is_escaped(make_run: MakeRun, tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><b>&'\""
    run = make_run("<i>run", [1], env=evil, explorer=evil)
    index = write_report([run, tmp_path / "<img src=x>"], tmp_path / "report").index
    page = index.read_text()
    assert "<b>&" not in page
    assert "<script>alert" not in page
    assert "<i>run" not in page
    assert "<img src=x>" not in page
    assert data_of(index)["sections"][0]["labels"] == [f"dqn+{evil}"]


# What is broken or foreign ------------------------------------------------------------------------------------


def test_the_broken_is_named_and_the_rest_reported(make_run: MakeRun, tmp_path: Path) -> None:
    good = make_run("good", [1, 2], seed=0)
    torn = make_run("torn", [1, 3], seed=1)
    with (torn / "metrics.jsonl").open("a") as file:
        file.write('[1}\n{"kind": "episode", "step": 30, "return": "high"}\n{"kind": "ep')
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    alien = tmp_path / "alien"
    alien.mkdir()
    (alien / "config.toml").write_text('algorithm = "x"\n[config]\nlearning_rate = 1\n')
    garbled = make_run("garbled", [1], seed=2)
    (garbled / "config.toml").write_text("algorithm =\n")
    empty = make_run("empty", [1], seed=3)
    (empty / "metrics.jsonl").write_text("")
    lost = make_run("lost", [1], seed=4)
    (lost / "metrics.jsonl").unlink()
    running = make_run("running", [1, 5], seed=5, finish=False)
    carded = make_run("carded", [1, 4], seed=6)
    (carded / "card.json").write_text("[]")
    missing = tmp_path / "missing"

    paths = [good, torn, foreign, alien, garbled, empty, lost, running, carded, missing]
    result = write_report(paths, tmp_path / "report")
    assert [score.seeds for score in result.scores] == [[0, 1, 5, 6]]
    assert result.problems == [
        f"{torn}/metrics.jsonl, line 3 is broken: not JSON (and 2 more such lines); read without",
        f"{foreign} is not a run directory: it has no config.toml; left out",
        f"{alien}/config.toml names no algorithm, env and seed: it is not a run of critex; left out",
        f"cannot read {garbled}/config.toml: Invalid value (at line 1, column 12); left out",
        f"{empty}/metrics.jsonl holds no finished episode; left out",
        f"cannot read {lost}/metrics.jsonl: No such file or directory; left out",
        f"{running} is not finished: its numbers are those up to step 20",
        f"{carded}/card.json is broken: not a JSON object; read without",
        f"{missing} does not exist; left out",
    ]
    page = result.index.read_text()
    assert all(problem in page for problem in result.problems)


def test_visits_are_drawn_on_the_largest_grid(make_run: MakeRun, tmp_path: Path) -> None:
    def grid(n: int) -> dict[str, Any]:
        return {"shape": [n, n], "snapshots": [{"step": 10, "counts": [[1] * n] * n}]}

    runs = [make_run("a", [1], visits=grid(2), seed=0), make_run("b", [1], visits=grid(3), seed=1)]
    result = write_report(runs, tmp_path / "report")
    assert result.problems == []
    assert data_of(result.index)["sections"][0]["visits"]["rows"] == 3


def test_nothing_usable(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no usable run.*nowhere does not exist.*give run directories"):
        write_report([tmp_path / "nowhere"], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_link_to_itself_is_left_out(make_run: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    result = write_report([make_run("a", [1]), tmp_path / "loop"], tmp_path / "report")
    assert len(result.scores) == 1
    assert result.problems == [
        f"{tmp_path / 'loop'} cannot be opened: Too many levels of symbolic links; left out"
    ]


def test_returns_near_the_end_of_the_numbers_are_not_drawn(make_run: MakeRun, tmp_path: Path) -> None:
    result = write_report([make_run("a", [1, 1.7e308, -1.7e308, 2])], tmp_path / "report")
    assert result.index.exists()


def test_a_run_is_no_place_for_a_report(make_run: MakeRun) -> None:
    run = make_run("a", [1])
    with pytest.raises(UserError, match="is a run; write the report to another directory"):
        write_report([run], run)


def test_a_file_in_the_way(make_run: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*report"):
        write_report([make_run("a", [1])], tmp_path / "report")


@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_a_missing_library_names_the_extra(
    module: str, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=re.escape('pip install "critex[report]"')):
        write_report([make_run("a", [1])], tmp_path / "report")
    assert not (tmp_path / "report").exists()


# Words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (1234567, "", "1,234,567"),
        (0.123456, "", "0.1235"),
        (0, "", "0"),
        (None, "", "—"),
        (nan, "s", "—"),
        (512, "bytes", "512 bytes"),
        (1536, "bytes", "1.5 KiB"),
        (3 * 2**40, "bytes", "3,072 GiB"),
        (90, "s", "90 s"),
        (150, "s", "2.5 min"),
        (9000, "s", "2.5 h"),
    ],
)
def test_numbers_for_people(value: float | None, unit: str, written: str) -> None:
    assert text(value, unit) == written


@pytest.mark.parametrize(
    ("summary", "mean", "between"),
    [
        (Summary(0.8531, 0.2292, 0.5885, 0.9856, 3), "0.85 ± 0.23 (n=3)", "[0.59, 0.99]"),
        (Summary(12345.6, 678.9, 11000, 13000, 5), "12,346 ± 679 (n=5)", "[11,000, 13,000]"),
        (Summary(-0.001, 0.5, -0.004, 0.2, 2), "0.00 ± 0.50 (n=2)", "[0.00, 0.20]"),
        (Summary(0.99, 0.0, 0.99, 0.99, 4), "0.99 ± 0 (n=4)", "[0.99, 0.99]"),
        (Summary(0.5, nan, nan, nan, 1), "0.5 (n=1)", "—"),
        (Summary(nan, nan, nan, nan, 0), "—", "—"),
    ],
)
def test_a_score_never_stands_without_its_number_of_seeds(summary: Summary, mean: str, between: str) -> None:
    assert spread(summary) == mean
    assert interval(summary) == between


def test_the_table_for_a_terminal(make_run: MakeRun) -> None:
    runs = [make_run(f"a{s}", [s], seed=s, evaluations=[2]) for s in range(2)]
    runs.append(make_run("b", [7], env="CartPole-v1"))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(score_table([final_score_of(method) for method in group(load_runs(runs, []), [])]))
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert "dqn 0.50 ± 0.71 (n=2) [0.00, 1.00] 2 ± 0 (n=2)" in lines
    assert lines.index("DeepSea-8-v0") < lines.index("CartPole-v1") < lines.index("dqn 7 (n=1) — —")


def test_long_labels_are_not_cut_off() -> None:
    label, nothing = "dqn+cae (an_option_with_a_long_name=1)", Summary(nan, nan, nan, nan, 0)
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(score_table([FinalScore("E-v0", label, [1], nothing, nothing)]))
    assert "…" not in console.export_text()


def test_hostile_lines_and_names_do_not_abort_a_report(make_run: MakeRun, tmp_path: Path) -> None:
    """Each line is well-formed JSON, or nearly; the rest of the runs is still reported, with escapes written out."""
    hostile = [
        '{"kind": "episode", "step": 30, "time": 1.0, "return": [1, [2]]}',
        '{"kind": "episode", "step": 40, "time": 1.0, "return": true}',
        '{"kind": "episode", "step": 1' + "0" * 400 + ', "time": 1.0, "return": 1}',
        '{"kind": "train", "step": 40, "time": 1.0, "bonus": 1' + "0" * 400 + "}",
        "[" * 100_000,
        '{"kind": "eval", "step": 40, "time": 1.0, "return": "Infinity"}',
    ]
    good, bad = make_run("good", [1, 2], seed=0), make_run("bad", [1, 3], seed=1, env="\x1b[31mred")
    with (bad / "metrics.jsonl").open("a") as file:
        file.write("\n".join(hostile) + "\n")
    (bad / "card.json").write_text(
        '{"parameters": "many", "totals": {"seconds": [], "env_steps": "x", "a": 1e999}}'
    )
    result = write_report([good, bad], tmp_path / "report")
    assert [score.seeds for score in result.scores] == [[0], [1]]
    assert any("metrics.jsonl" in problem and "more such lines" in problem for problem in result.problems)
    assert "\x1b" not in result.index.read_text() + "".join(
        score.label + score.env for score in result.scores
    )
