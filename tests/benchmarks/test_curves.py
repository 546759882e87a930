"""What is kept of a suite's runs, and adding to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import curves


@pytest.mark.parametrize(("option", "kept"), [("'auto'", "0.034567"), ("0.1", "")])
def test_the_last_automatic_alpha_is_kept(tmp_path: Path, option: str, kept: str) -> None:
    run = tmp_path / "E-v0" / "dqn+cae" / "seed-1"
    run.mkdir(parents=True)
    config = f"algorithm = 'dqn'\n[config]\nenv = 'E-v0'\nseed = 1\nalpha = {option}\n"
    (run / "config.toml").write_text(config, encoding="utf-8")
    lines = [
        '{"kind": "train", "step": 1, "time": 1, "alpha": 0.1}',
        '{"kind": "train", "step": 2, "time": 2, "alpha": 0.034567}',
        '{"kind": "episode", "step": 2, "time": 2, "return": 1.0}',
    ]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _, (row,) = curves.rows_of(tmp_path, 1, [])
    assert (str(row["alpha"]), row["last_alpha"]) == (option.strip("'"), kept)


def test_runs_are_added_to_a_file_without_the_newest_column(tmp_path: Path) -> None:
    path, key = tmp_path / "runs.csv", {"task": "E-v0", "method": "dqn"}
    curves.write(path, [{**key, "seed": "1", "alpha": "0.1"}])
    new = {**key, "seed": "2", "alpha": "auto", "last_alpha": "0.03"}
    added = curves.joined(path, [new], add=True)
    assert added == [{**key, "seed": "1", "alpha": "0.1", "last_alpha": ""}, new]
    curves.write(path, added)
    assert curves.read(path) == added
    with pytest.raises(SystemExit, match="has the columns"):
        curves.joined(path, [{**key, "seed": "2", "coverage": 1.0}], add=True)
