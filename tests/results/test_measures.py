"""What an environment measures besides the return, from metrics.jsonl to tables and reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from critex.report.figures import curve_figures
from critex.results.cells import last_episodes, last_evaluations
from critex.results.methods import final_score_of, group
from critex.results.runs import load_run, load_runs, measure_of, series_name
from critex.run import Run
from critex.tables import fill, table_named
from critex.tables.scores import score_table
from tests.report.conftest import Config, Episode

COVERAGES = [0.1, 0.2, 0.3, 0.6]


def write(
    path: Path, shift: float = 0.0, reward: float = 0.0, algorithm: str = "ppo_recurrent", **options: object
) -> Path:
    """A run of four episodes with an evaluation after each; evaluations reveal twice as much."""
    with Run.create(algorithm, Config(out=str(path), **options)) as run:  # type: ignore[arg-type]
        run.attach()
        for step in run.steps(40, 10):
            coverage = COVERAGES[step // 10] + shift
            run.episodes([Episode(reward, measures={"coverage": coverage})])
            run._log.write("eval", run.step, {"return": reward, "coverage": 2 * coverage, "coverages": [1.0]})
        run.finish({"parameters": 10, "parameters_added": 0})
    return path


def test_a_measure_has_a_curve_in_training_and_in_evaluations(tmp_path: Path) -> None:
    run = load_run(write(tmp_path / "a"), [])
    assert run.measures == ("coverage",)
    assert run.values("coverage").tolist() == COVERAGES
    assert run.values(series_name("coverage", evaluation=True)).tolist() == [2 * c for c in COVERAGES]
    assert last_episodes(run, "coverage") == pytest.approx(0.3) and last_episodes(run) == 0
    assert last_evaluations(run, "coverage") == pytest.approx(1.2)
    assert last_evaluations(run, "distance") != last_evaluations(
        run, "distance"
    )  # NaN: there is no such measure
    figures = {figure.key: figure for figure in curve_figures(group([run], []))}
    assert figures["evaluation_coverage"].ylabel == "coverage"
    assert figures["coverage"].title == "Coverage in training"


def test_the_measure_counts_where_there_is_no_reward(tmp_path: Path) -> None:
    free, paid = (load_run(write(tmp_path / name, reward=r), []) for name, r in (("a", 0.0), ("b", 1.0)))
    assert measure_of([free]) == "coverage" and measure_of([free, paid]) == measure_of([]) == "return"
    (method,) = group([free], [])
    score = final_score_of(method)
    assert (score.measure, score.training.mean) == ("coverage", pytest.approx(0.3))
    assert score.evaluation.mean == pytest.approx(1.2)
    assert final_score_of(method, "return").training.mean == 0
    header = [str(column.header) for column in score_table([score]).columns]
    assert "coverage, last 100 episodes" in header


def test_the_table_of_a_suite_scores_by_its_measure(tmp_path: Path) -> None:
    task = "VizdoomExplore-train-v0"
    for method, shift in (("ppo_recurrent", 0.0), ("ppo_recurrent+cae", 0.1), ("reference-wall", -0.1)):
        algorithm, explorer = method.partition("+")[0].partition("-")[0], method.partition("+")[2] or "none"
        for seed in (1, 2):
            where = tmp_path / task / method / f"seed-{seed}"
            env = f"{task}?resolution=40x30"
            write(where, shift, algorithm=algorithm, env=env, explorer=explorer, seed=seed)
    (tmp_path / "suite.toml").write_text('suite = "visual"\nversion = 2\nbudget = 1.0\n')
    table = table_named("visual")
    assert table.curve == "evaluation_coverage"
    grid, _ = fill(table, tmp_path, [])
    rows = {row.method: row for row in grid.rows}
    assert rows["ppo_recurrent"].ours.mean == pytest.approx(1.2)
    assert rows["ppo_recurrent+cae"].rpi == pytest.approx(100 / 6)
    assert rows["reference-wall"].rpi == pytest.approx(
        -100 / 6
    )  # references, too, against the algorithm alone
    assert rows["reference-random"].ours.n == 0
    assert any("mean coverage of the last tenth" in note for note in grid.notes)
    assert any("Table 6" in note and "0.69 ± 0.074" in note for note in grid.notes)
    assert len(load_runs([tmp_path / task / "ppo_recurrent"], [])) == 2
