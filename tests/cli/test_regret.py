"""critex regret."""

import json

import pytest

from critex.cli import main
from critex.cli.regret import claim
from critex.report.regret import read_results


def test_run_one_problem_then_show_it(tmp_path, capsys):
    out = tmp_path / "runs"
    claim(out, "linear-bandit", 0.1)
    for method in ("lin-ucb", "lin-ts"):
        where = str(out / "linear-bandit" / method)
        main(["regret", "cell", "linear-bandit", "linear-bandit", method, "100", "--out", where])
    main(["regret", "show", str(out)])
    printed = capsys.readouterr().out
    assert "lin-ucb" in printed
    assert "linear-bandit, 100 rounds, 10 seeds" in printed
    page = (out / "report" / "index.html").read_text()
    assert "lin-ts" in page
    assert "data:image/png;base64," in page
    first = read_results(out)[0]
    assert first.regret.shape[0] == 10
    assert first.slope.low <= first.slope.value <= first.slope.high
    card = json.loads((out / "linear-bandit" / "lin-ucb" / "card.json").read_text())
    assert card["potential"] <= card["potential_bound"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "rivrswim"], "did you mean riverswim"),
        (["run", "--budget", "0"], "budget is 0.0"),
        (["run", "--jobs", "0"], "jobs is 0"),
        (["walk"], "known: run, show"),
        (["show", "nowhere"], "critex regret run --out nowhere"),
        (["cell", "lok", "lock", "acb", "20"], "did you mean lock"),
        (["cell", "lock", "lock", "lin-ucb", "20"], "lock has no run of lin-ucb on lock"),
    ],
)
def test_mistakes_are_one_line(args, says, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["regret", *args])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_directory_belongs_to_one_suite_and_budget(tmp_path, capsys):
    claim(tmp_path / "runs", "lock", 0.5)
    for args in (
        ["run", "lock", "--out", str(tmp_path / "runs")],
        ["show", str(tmp_path / "runs")],
        ["show", str(tmp_path)],
    ):
        with pytest.raises(SystemExit):
            main(["regret", *args])
    says = capsys.readouterr().err.splitlines()
    assert "with budget 0.5" in says[0]
    assert "no finished run" in says[1]
    assert "has no regret.toml" in says[2]
