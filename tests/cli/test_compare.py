"""`critex compare`: the same runs with and without explorers, and one report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from critex.algorithms import load_config
from critex.cli import main
from critex.cli.compare import Options, comparison
from critex.run import read_config

TINY = "--env DeepSea-4-v0 --steps 200 --learning-starts 20 --log-every 50".split()


def compare(out: Path, *args: str) -> None:
    main(["compare", "dqn", *TINY, "--out", str(out), *args])


def test_runs_differ_in_the_bonus_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare(tmp_path, "--seeds", "2", "--explorer", "cae,counts", "--alpha=0.3", "--hidden", "8", "5")
    runs = {
        path.parents[1].name: load_config(*read_config(path.parent))
        for path in tmp_path.glob("runs/*/seed-2/config.toml")
    }
    assert set(runs) == {"dqn", "dqn+cae", "dqn+counts"}
    assert {(cfg.seed, cfg.steps, cfg.hidden) for cfg in runs.values()} == {(2, 200, (8, 5))}
    assert [runs[name].explorer for name in sorted(runs)] == ["none", "cae", "counts"]
    assert runs["dqn+cae"].alpha == runs["dqn+counts"].alpha == 0.3
    printed = capsys.readouterr().out
    assert all(name in printed for name in runs)
    assert (tmp_path / "report" / "index.html").exists()

    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/seed-*/metrics.jsonl")}
    compare(tmp_path, "--seeds", "2", "--explorer", "cae", "--alpha=0.3", "--hidden", "8", "5")
    assert {path: path.stat().st_mtime_ns for path in before} == before, "finished runs are kept"

    with pytest.raises(SystemExit) as stop:
        compare(tmp_path, "--seeds", "2", "--explorer", "cae", "--alpha", "0.3", "--hidden", "8")
    assert stop.value.code == 2
    assert "begun with hidden [8, 5], not [8]; choose another --out" in capsys.readouterr().err


def test_an_environment_of_ones_own_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call reads the configs of the first, which name a module."""
    (tmp_path / "pond.py").write_text(
        "import gymnasium as gym\ngym.register('Pond-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for seeds in ("1", "1-2"):
        tiny = "--env=pond:Pond-v0 --steps 60 --learning-starts 20 --explorer cae"
        main(["compare", "dqn", *tiny.split(), "--seeds", seeds, "--out", "both"])
    assert len(list(Path("both").glob("runs/*/seed-*/card.json"))) == 4


def test_options_of_the_bonus_are_for_explorers(tmp_path: Path) -> None:
    bonus = "--bonus.ridge 0.5 --bonus.no-zero-first --bonus-in value --bonus.embedding block --bonus.scaling none"
    compare(tmp_path, "--seeds", "1", *bonus.split())
    alone, explores = (
        load_config(*read_config(tmp_path / "runs" / name / "seed-1")) for name in ("dqn", "dqn+cae")
    )
    assert explores.bonus.ridge == 0.5 and explores.bonus_in == "value"
    assert alone.explorer == "none" and alone.bonus_in == "reward"


def test_each_explorer_gets_the_options_it_has(tmp_path: Path) -> None:
    flags = [["--bonus.ridge", "0.5"], ["--bonus.of=state_action"], ["--alpha", "2"]]
    options = Options(explorer="cae,counts", seeds="1")
    jobs = comparison("dqn", options, [["--env", "DeepSea-4-v0"], *flags], tmp_path)
    given = {job.out.parent.name: [flag for flag in flags if flag[0] in job.train] for job in jobs}
    ridge, of, alpha = flags
    assert given == {"dqn": [], "dqn+cae": [ridge, alpha], "dqn+counts": [of, alpha]}


def test_runs_that_would_be_refused_are_refused_before_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "both"
    with pytest.raises(SystemExit) as stop:
        compare(out, "--learning-starts", "500")
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("critex: learning starts after 500 steps and the run has 200")
    assert not out.exists()


@pytest.mark.parametrize("command", ["compare dqn", "demo", "regret run lock"])
@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_a_report_that_could_not_be_written_is_refused_before_the_training(
    command: str,
    module: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f'critex: a report needs {module}: pip install "critex[report]"\n'
    assert not (tmp_path / "out").exists()


def test_help_names_the_algorithms(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["compare"], ["compare", "dqn", "--help"], ["help", "compare"]):
        with pytest.raises(SystemExit) as stop:
            main(args)
        assert stop.value.code == 0
        out = capsys.readouterr().out
        assert "--seeds" in out and "algorithms: dqn" in out
