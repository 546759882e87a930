"""Explorers and algorithms of other packages: found through entry points, they train, resume, evaluate, join suites."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from critex.algorithms import ALGORITHMS, algorithm_module
from critex.cli import dispatch
from critex.cli.train import train_config
from critex.errors import UserError
from critex.explorers import EXPLORERS, explorer_class
from critex.run import TIMING_FIELDS

EXAMPLES = Path(__file__).parents[1] / "examples"
TRAIN = (
    "sarsa --explorer distance --alpha 0.01 --steps 2000 --log-every 100 --checkpoint-every 200 "
    "--no-tensorboard --no-progress"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an installed package: two modules and the metadata that an installer writes."""
    site = tmp_path_factory.mktemp("site-packages")
    for name in ("own_explorer", "own_algorithm"):
        shutil.copy(EXAMPLES / f"{name}.py", site)
    (site / "broken_explorer.py").write_text("import a_package_that_is_not_there\n")
    info = site / "own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[critex.explorers]\ndistance = own_explorer:Distance\nbroken = broken_explorer:Broken\n"
        "config = own_explorer:DistanceConfig\ncae = own_explorer:Distance\n\n"
        "[critex.algorithms]\nsarsa = own_algorithm\nhalf = own_explorer\n"
    )
    return site


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    yield
    explorer_class.cache_clear()


def metrics(run: Path) -> list[dict[str, object]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k not in TIMING_FIELDS} for line in lines]


@pytest.mark.usefixtures("installed")
def test_names_and_errors() -> None:
    assert "distance" in EXPLORERS and "sarsa" in ALGORITHMS and list(ALGORITHMS)[-1] == "sarsa"
    assert explorer_class("distance").__name__ == "Distance"
    assert explorer_class("cae").__name__ == "CAEExplorer"  # a name of ours cannot be taken
    cfg = train_config("sarsa", ["--explorer", "distance*counts", "--bonus.first.decay", "0.5"])
    assert cfg.bonus.first.decay == 0.5
    with pytest.raises(
        UserError, match=r"explorer 'broken' \(broken_explorer:Broken\) cannot be imported: No module"
    ):
        explorer_class("broken")
    with pytest.raises(UserError, match="'config' is not a critex.explorers.Explorer"):
        explorer_class("config")
    with pytest.raises(UserError, match="algorithm 'half' .* does not define Config, Agent, train"):
        algorithm_module("half")
    with pytest.raises(UserError, match="did you mean distance"):
        explorer_class("distanse")


def test_without_the_package_they_are_unknown() -> None:
    assert "distance" not in EXPLORERS and "sarsa" not in ALGORITHMS
    with pytest.raises(UserError, match="unknown algorithm 'sarsa'"):
        algorithm_module("sarsa")


def command(site: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    import os

    path = os.pathsep.join([str(site), *sys.path])
    return [sys.executable, "-m", "critex.cli", *words], os.environ | {"PYTHONPATH": path}


@pytest.mark.usefixtures("installed")
def test_trained_killed_resumed_evaluated(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process killed in mid-run; resumed, it writes what a run that was never killed writes."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    dispatch(["train", *TRAIN.split(), "--out", str(whole)])
    words, env = command(site, "train", *TRAIN.split(), "--out", str(killed))
    process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if any((killed / "checkpoints").glob("*000*")) or len(list((killed / "checkpoints").glob("*"))) > 1:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    process.wait()
    assert not (killed / "card.json").exists(), "it finished before it could be killed"
    dispatch(["resume", str(killed)])
    assert metrics(killed) == metrics(whole)
    dispatch(["explain", str(killed), "--episodes", "1", "--max-steps", "3", "--out", str(tmp_path / "page")])
    assert (tmp_path / "page" / "index.html").exists()
    dispatch(["eval", str(killed), "--episodes", "2"])
    assert "over 2 episodes" in capsys.readouterr().out


def test_in_suites(site: Path) -> None:
    words, env = command(site, "suite", "show", "smoke")
    shown = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    # `broken` and `half` of the same package cannot be loaded; the rest of the suite is there all the same.
    assert "sarsa" in shown.stdout and "--explorer distance" in shown.stdout, shown.stderr
