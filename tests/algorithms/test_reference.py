"""Fixed policies as runs: they play the evaluations of a learner with the same seed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from critex.algorithms import ALGORITHMS, algorithm_module, load_config
from critex.algorithms.reference import POLICIES, Config
from critex.cli import main
from critex.data import derive_seed
from critex.envs import Envs
from critex.errors import UserError
from critex.run import read_config, read_metrics
from critex.run.evaluation import evaluate

ENV = "VizdoomExplore-val-v0?levels=MAP31&resolution=40x30&steps=12"


def test_a_reference_plays_the_episodes_that_a_learner_is_scored_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("vizdoom")
    flags = f"--policy wall --env {ENV} --steps 100 --eval-every 40 --eval-episodes 2 --seed 3 --no-progress"
    main(["train", "reference", *flags.split(), "--no-tensorboard", "--out", str(tmp_path / "wall")])
    lines = read_metrics(tmp_path / "wall")
    assert [(line["kind"], line["step"]) for line in lines] == [("eval", 40), ("eval", 80)]
    same = evaluate(POLICIES["wall"], partial(Envs, ENV), 2, derive_seed(3, "evaluation", 80))
    assert lines[1]["coverages"] == same["coverages"] and 0 < lines[1]["coverage"] < 1
    with pytest.raises(SystemExit):
        main(["eval", str(tmp_path / "wall")])
    assert "a run of a fixed policy, with no agent to load" in capsys.readouterr().err
    cfg = load_config(*read_config(tmp_path / "wall"))
    assert algorithm_module("reference").Agent(cfg).policy is POLICIES["wall"]


def test_it_is_no_algorithm_and_takes_no_bonus() -> None:
    assert "reference" not in ALGORITHMS
    with pytest.raises(UserError, match="takes no bonus; leave out --explorer cae"):
        Config(explorer="cae")
    with pytest.raises(UserError, match="--eval-every must be at most --steps, 10"):
        Config(steps=10, eval_every=20)
