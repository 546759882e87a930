"""A directory of runs belongs to one suite, one version of it and one budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from critex.errors import UserError
from critex.suite import SUITES, Job, Manifest, read_manifest
from critex.suite.ledger import Ledger
from critex.suite.manifest import claim
from critex.suite.places import Began

SMOKE, DEEPSEA = SUITES["smoke"], SUITES["deepsea"]


def test_claimed_once_it_is_read_and_claimed_again(tmp_path: Path) -> None:
    claim(tmp_path / "runs", SMOKE, 0.1)
    claim(tmp_path / "runs", SMOKE, 0.1)
    assert read_manifest(tmp_path / "runs") == Manifest("smoke", 1, 0.1)
    assert (tmp_path / "runs" / "suite.toml").read_text() == 'suite = "smoke"\nversion = 1\nbudget = 0.1\n'


def hold_a_run(directory: Path) -> None:
    run = directory / "CartPole-v1" / "dqn" / "seed-1"
    run.mkdir(parents=True)
    (run / "config.toml").touch()


def test_until_there_is_a_run_another_budget_may_be_chosen(tmp_path: Path) -> None:
    claim(tmp_path, SMOKE, 1e-6)
    job = Job("a", tmp_path / "CartPole-v1" / "dqn" / "seed-1", ("dqn",), 1)
    job.log.parent.mkdir(parents=True)
    job.log.touch()
    ledger = Ledger(tmp_path)
    ledger.began(job, Began(["train"], "here", 42, {}))
    with pytest.raises(UserError, match="cannot be mixed"):  # it may be about to write its config
        claim(tmp_path, SMOKE, 0.5)
    ledger.ended(job, "failed")
    claim(tmp_path, SMOKE, 0.5)
    assert read_manifest(tmp_path).budget == 0.5


def test_another_suite_version_or_budget_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(tmp_path, SMOKE, 1.0)
    hold_a_run(tmp_path)
    with pytest.raises(UserError, match="holds runs of the suite smoke, not of deepsea"):
        claim(tmp_path, DEEPSEA, 1.0)
    with pytest.raises(UserError, match=r"--budget 1, which cannot be mixed with 0\.5"):
        claim(tmp_path, SMOKE, 0.5)
    monkeypatch.setitem(SUITES, "smoke", replace(SMOKE, version=2))
    with pytest.raises(UserError, match="version 1 of smoke, and this critex has version 2"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("suite = ", "cannot read .*suite.toml"),
        ('suite = "smoke"\nversion = 1', "'budget' is missing"),
        ('suite = "smoke"\nversion = "1"\nbudget = 1', "'version' is '1'"),
        (
            'suite = "atari"\nversion = 1\nbudget = 1',
            "names the suite 'atari', which this critex does not have",
        ),
    ],
)
def test_a_broken_manifest_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "suite.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_manifest(tmp_path)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist; make it with: critex suite run NAME --out"):
        read_manifest(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="it is a file"):
        read_manifest(tmp_path / "file")
    (tmp_path / "file").unlink()
    (tmp_path / "suite.toml.tmp").touch()  # what a crash while claiming leaves
    claim(tmp_path / ".", SMOKE, 1.0)
    (tmp_path / "suite.toml").unlink()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match="holds other files"):
        claim(tmp_path, SMOKE, 1.0)
    with pytest.raises(UserError, match="cannot write .*thesis.tex"):
        claim(tmp_path / "thesis.tex", SMOKE, 1.0)
