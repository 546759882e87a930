"""critex regret."""

import json

import pytest

from critex.cli import main
from critex.report.regret import REGRET_RUNS, read_results
from critex.suite.manifest import claim
from critex.theory.suites import SUITES


def run_cell(out, problem, method, episodes):
    main(["regret", "cell", problem, problem, method, str(episodes), "--out", str(out / problem / method)])


def says(args, capsys):
    """The one line of an error."""
    with pytest.raises(SystemExit) as stop:
        main(["regret", *map(str, args)])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_run_what_is_missing_then_show_it(tmp_path, capsys):
    out = tmp_path / "runs"
    claim(out, SUITES["linear-bandit"], 0.02, REGRET_RUNS)
    for method in ("lin-ucb", "lin-ts", "neural-lin-ucb"):
        run_cell(out, "linear-bandit", method, 20)
    kept = out / "linear-bandit" / "lin-ucb" / "regret.csv"
    before = kept.stat().st_mtime_ns
    main(["regret", "run", "linear-bandit", "--budget", "0.02", "--jobs", "1", "--out", str(out)])
    assert kept.stat().st_mtime_ns == before
    printed = capsys.readouterr().out
    assert "linear-bandit, 20 rounds, 10 seeds" in printed
    assert "neural-lin-ts" in printed
    page = (out / "report" / "index.html").read_text()
    assert "neural-lin-ts" in page
    assert "data:image/png;base64," in page
    rows = (out / "report" / "slopes.csv").read_text().splitlines()
    assert rows[1].startswith("linear-bandit,lin-ucb,1,20,10,")
    results = read_results(out)
    assert [result.method for result in results] == ["lin-ucb", "lin-ts", "neural-lin-ucb", "neural-lin-ts"]
    assert results[0].regret.shape[0] == 10
    assert results[0].slope.low <= results[0].slope.value <= results[0].slope.high
    card = json.loads((kept.parent / "card.json").read_text())
    assert card["potential"] <= card["potential_bound"]


def test_help_names_every_suite(capsys):
    with pytest.raises(SystemExit):
        main(["regret", "run", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert all(name in printed for name in SUITES)


def test_the_terms_of_the_theorem_are_drawn(tmp_path, capsys):
    out = tmp_path / "runs"
    claim(out, SUITES["riverswim"], 0.02, REGRET_RUNS)
    run_cell(out, "riverswim", "cae-theorem", 20)
    main(["regret", "show", str(out)])
    assert "cae-theorem" in capsys.readouterr().out
    assert (out / "report" / "riverswim.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["run", "rivrswim"], "did you mean riverswim"),
        (["run", "--budget", "0"], "budget is 0.0"),
        (["run", "--budget", "0", "riverswim"], "budget is 0.0"),
        (["run", "--budget=0", "riverswim"], "budget is 0.0"),
        (["run", "--out", "riverswim", "--budget", "0"], "budget is 0.0"),
        (["run", "--out", "x", "rivrswim"], "did you mean riverswim"),
        (["run", "--jobs", "0"], "jobs is 0"),
        (["walk"], "known: run, show"),
        (["show", "nowhere"], "critex regret run --out nowhere"),
        (["cell", "lok", "lock", "acb", "20"], "did you mean lock"),
        (["cell", "lock", "lock", "lin-ucb", "20"], "lock has no run of lin-ucb on lock"),
    ],
)
def test_mistakes_are_one_line(args, expected, capsys):
    assert expected in says(args, capsys)


def test_a_directory_belongs_to_one_suite_and_budget(tmp_path, capsys):
    out = tmp_path / "runs"
    claim(out, SUITES["lock"], 0.5, REGRET_RUNS)
    (out / "run").mkdir()
    (out / "run" / "card.json").write_text("{}")
    assert "--budget 0.5, which cannot be mixed with 1" in says(["run", "lock", "--out", out], capsys)
    assert "runs of the suite lock, not of all" in says(["run", "--out", out], capsys)
    assert f"critex regret run lock --budget 0.5 --out {out}" in says(["show", out], capsys)
    assert "has no regret.toml" in says(["show", tmp_path], capsys)
    assert "it is a file" in says(["show", out / "regret.toml"], capsys)
    assert "holds other files" in says(["run", "lock", "--out", tmp_path], capsys)


@pytest.mark.parametrize(
    ("card", "curve", "message"),
    [
        ("{}", "episode,seed 1\nfew,many\n", "few"),
        ("{}", "episode,seed 1\n1,2\n", "card.json lacks alpha"),
        ("[1]", "episode,seed 1\n1,2\n", "card.json lacks alpha"),
        ('{"alpha": 1}', "episode\n1\n", "regret.csv has no regret"),
        ('{"alpha": 1}', "episode,seed 1\n", "regret.csv has no regret"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_broken_run_is_one_line(card, curve, message, tmp_path, capsys):
    claim(tmp_path, SUITES["lock"], 0.5, REGRET_RUNS)
    cell = tmp_path / "lock" / "acb"
    cell.mkdir(parents=True)
    (cell / "card.json").write_text(card)
    (cell / "regret.csv").write_text(curve)
    error = says(["show", tmp_path], capsys)
    assert message in error and "delete it and run the suite again" in error


def test_broken_files_are_one_line(tmp_path, capsys):
    out = tmp_path / "runs"
    claim(out, SUITES["lock"], 0.5, REGRET_RUNS)
    (out / "regret.toml").write_text('version = 1\nsuite = "locks"\nbudget = 1.0\n')
    assert "'locks', which this critex does not have" in says(["show", out], capsys)
    (out / "regret.toml").write_text("suite")
    assert "cannot read" in says(["show", out], capsys)
