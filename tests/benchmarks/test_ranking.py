"""The page that ranks explorers: it is what results/ gives, and grows with it."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ranking


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def runs(scores: dict[tuple[str, str], list[float]], finished: bool = True) -> list[dict[str, object]]:
    """The rows of a runs.csv: scores by (task, method), seed by seed."""
    return [
        {"task": task, "method": method, "seed": i + 1, "final_score": x, "alpha": 0.1, "finished": finished}
        for (task, method), values in scores.items()
        for i, x in enumerate(values)
    ]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ranking, "RESULTS", tmp_path)
    write(
        tmp_path / "a" / "runs.csv",
        runs({("Pond", "ppo"): [1, 3], ("Pond", "ppo+cae"): [4, 4], ("Pond", "ppo+rnd"): [-2, -2]}),
    )
    write(tmp_path / "a" / "other" / "runs.csv", runs({("Pond", "ppo+cae"): [3, 5]}))
    write(tmp_path / "b" / "runs.csv", runs({("Lake", "sac"): [10, 10], ("Lake", "sac+cae-root"): [5, 5]}))
    write(tmp_path / "b" / "late" / "runs.csv", runs({("Lake", "sac+cae"): [99]}, finished=False))
    return tmp_path


def test_the_page_is_up_to_date() -> None:
    """If this fails, results/ has changed: python benchmarks/ranking.py."""
    assert ranking.PAGE.read_text(encoding="utf-8") == ranking.page(*ranking.load())


def test_reading(results: Path) -> None:
    scores, others = ranking.load()
    found = {(str(s.task), s.explorer) for s in scores}
    assert found == {
        *(("Pond, ppo", e) for e in ("none", "cae", "cae (other)", "rnd")),
        *(("Lake, sac", e) for e in ("none", "cae (root)")),
    }
    assert others == []
    write(results / "c" / "loss.csv", [{"step": 1, "loss": 2}])
    assert ranking.load()[1] == ["c/loss.csv"]


def test_a_single_seed_adds_nothing_to_the_interval() -> None:
    def mean(tasks: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        return np.concatenate([x for _, x in tasks], axis=-1).mean(-1)

    two, one = (np.zeros(2), np.array([0.0, 1.0])), (np.zeros(1), np.array([0.5]))
    found = ranking.estimate(mean, [two, one])
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5 / 3, 2.5 / 3))
    assert math.isnan(ranking.estimate(mean, [one]).low)


def test_scores_are_shares_of_the_best_mean(results: Path) -> None:
    scores = {str(task): found for task, found in ranking.normalised(ranking.load()[0]).items()}
    assert scores["Pond, ppo"]["none"] == {1: pytest.approx(3 / 6), 2: pytest.approx(5 / 6)}  # from −2 to 4
    assert scores["Pond, ppo"]["rnd"] == {1: 0, 2: 0}
    assert scores["Lake, sac"]["cae (root)"] == {1: 0.5, 2: 0.5}  # from 0 to 10


def test_ranking(results: Path) -> None:
    places = {p.explorer: p for p in ranking.ranking(ranking.normalised(ranking.load()[0]))}
    assert list(places) == ["cae", "cae (other)", "cae (root)", "rnd"] and "none" not in places
    cae = places["cae"]
    assert (cae.tasks, cae.runs, cae.score.value) == (1, 2, pytest.approx(1))
    assert cae.base.value == pytest.approx(4 / 6) and cae.better.value == 1
    assert cae.worst[0] == pytest.approx(2 / 6)
    assert places["rnd"].cae.value == pytest.approx(1) and places["cae (root)"].cae is None
    assert places["cae (root)"].worst == (-0.5, 0.5, ranking.Task("b", "sac", "Lake"))


def test_it_grows(results: Path) -> None:
    before = ranking.page(*ranking.load())
    write(results / "new" / "runs.csv", runs({("Sea", "dqn"): [0.0], ("Sea", "dqn+noveld"): [1.0]}))
    after = ranking.page(*ranking.load())
    assert "NovelD" in after and "NovelD" not in before and "| Sea, dqn | 0.00 (1) |" in after
    noveld = next(p for p in ranking.ranking(ranking.normalised(ranking.load()[0])) if p.explorer == "noveld")
    assert math.isnan(noveld.score.low) and ranking.shown(noveld.score) == "1.00"


def test_deepsea_counts_the_deepest_size(results: Path) -> None:
    flags = "--explorer cae --bonus.strategy thompson --alpha 0.05"
    rows = [
        {"part": part, "method": "x", "size": n, "seed": 1, "solved": solved, "flags": flags}
        for part, n, solved in (("climb", 5, "40"), ("climb", 6, "80"), ("climb", 7, ""), ("tune", 9, "1"))
    ]
    write(results / "sea" / "runs.csv", rows)
    (score,) = (s for s in ranking.load()[0] if s.task.suite == "sea")
    assert (score.explorer, score.seed, score.value, score.setting) == ("cae (thompson)", 1, 6, "α = 0.05")
    rows += [{**row, "seed": 2} for row in rows if row["size"] == 5]
    write(results / "sea" / "runs.csv", rows)
    assert [s.value for s in ranking.load()[0] if s.task.suite == "sea"] == [5, 5]  # both seeds ran on 5 only


def test_a_run_counts_once(results: Path) -> None:
    for folder in ("one", "other"):
        write(results / folder / "runs.csv", runs({("Sea", "dqn"): [0.0]}))
    with pytest.raises(SystemExit, match="none on Sea, dqn, seed 1: two runs"):
        ranking.normalised(ranking.load()[0])
