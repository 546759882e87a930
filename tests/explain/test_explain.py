"""`critex explain`: what is shown of a trained agent is what its explorer says, and looking changes nothing."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from critex.cli import main
from critex.data import Transition, derive_seed
from critex.envs import Envs, make
from critex.explain import Novelty, explain
from critex.trained import load_trained

QUIET = ("--no-progress", "--no-tensorboard", "--seed", "1")


def train(path: Path, *arguments: str) -> Path:
    main(["train", *arguments, *QUIET, "--out", str(path)])
    return path


@pytest.fixture(scope="module")
def sea(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DQN with CAE after forty episodes on a DeepSea of 5 × 5."""
    flags = (
        "dqn --env DeepSea-5-v0 --explorer cae --steps 200 --learning-starts 50 --train-every 5 --hidden 16"
    )
    return train(tmp_path_factory.mktemp("sea") / "run", *flags.split())


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "steps.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def data(out: Path) -> Any:
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', (out / "index.html").read_text(), re.S
    )
    assert found
    return json.loads(found[1])


def picture(uri: str) -> np.ndarray[Any, Any]:
    kind, _, content = uri.partition(";base64,")
    assert kind in ("data:image/png", "data:image/jpeg")
    return np.array(Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB"))


def test_the_bonus_is_what_the_explorer_measures(sea: Path, tmp_path: Path) -> None:
    _, notes = explain(sea, tmp_path / "out", episodes=2)
    assert notes[:1] == [
        "Bonuses are measured against what cae remembered at step 200; nothing is added to it."
    ]
    trained, seen = load_trained(sea), rows(tmp_path / "out")
    envs, obs = Envs("DeepSea-5-v0", 1, derive_seed(0, "envs")), None
    for t in range(5):
        obs = envs.obs if obs is None else obs
        transition, obs = envs.step(trained.agent.policy(obs))
        raw, scaled = trained.explorer.measure(transition.obs, transition.action, transition.next_obs)
        assert float(seen[t]["bonus_raw"]) == pytest.approx(float(raw[0]), rel=1e-6)
        assert float(seen[t]["bonus"]) == pytest.approx(float(scaled[0]), rel=1e-6)
        assert float(seen[t]["reward"]) == pytest.approx(float(transition.reward[0]))
    # The task is deterministic and the memory stands still: the second episode is the first once more.
    assert [{**row, "episode": "1"} for row in seen[5:]] == seen[:5]
    assert [(row["row"], row["step"]) for row in seen[:5]] == [(str(t), str(t)) for t in range(5)]
    assert seen[0]["column"] == "0"


def test_looking_changes_nothing(sea: Path, tmp_path: Path) -> None:
    def content() -> dict[Path, str]:
        return {path: sha256(path.read_bytes()).hexdigest() for path in sea.rglob("*") if path.is_file()}

    before = content()
    explain(sea, tmp_path / "out")
    assert content() == before


def test_frames_are_those_of_the_environment(sea: Path, tmp_path: Path) -> None:
    explain(sea, tmp_path / "out", episodes=1)
    shown = data(tmp_path / "out")
    env = make("DeepSea-5-v0", render_mode="rgb_array")
    env.reset()
    for step in shown["episodes"][0]["steps"]:
        np.testing.assert_array_equal(picture(shown["frames"][step["frame"]]), env.render())
        env.step(np.int64(step["action"]))


def test_the_visits_of_training_come_from_the_checkpoint(sea: Path, tmp_path: Path) -> None:
    visits = json.loads((sea / "visits.json").read_text())
    explain(sea, tmp_path / "out", episodes=1)
    assert data(tmp_path / "out")["training"] == visits["snapshots"][-1]["counts"]
    assert data(tmp_path / "out")["shape"] == visits["shape"]


def test_an_interrupted_run(sea: Path, tmp_path: Path) -> None:
    cut = tmp_path / "run"
    cut.mkdir()
    for name in ("config.toml", "metrics.jsonl", "checkpoints"):
        subprocess.run(["cp", "-r", sea / name, cut / name], check=True)
    index, _ = explain(cut, tmp_path / "out", episodes=1)
    assert data(index.parent)["training"] is not None


def test_steps_are_cut_off(sea: Path, tmp_path: Path) -> None:
    explain(sea, tmp_path / "out", episodes=2, max_steps=3)
    shown = data(tmp_path / "out")["episodes"]
    assert [len(episode["steps"]) for episode in shown] == [3, 3]
    assert shown[0]["end"] == "stopped after 3 steps"
    assert shown[1]["steps"][0]["cell"] == [0, 0]  # and yet the next one begins at the start


def test_a_memory_that_must_go_on_does(tmp_path: Path) -> None:
    flags = (
        "dqn --env DeepSea-5-v0 --explorer counts --bonus.of next_state --bonus-in reward --bonus.scaling none "
        "--steps 100 --learning-starts 50 --hidden 8"
    )
    run = train(tmp_path / "run", *flags.split())
    _, notes = explain(run, tmp_path / "out", episodes=2)
    assert notes[:1] == [
        "counts cannot measure a step without remembering it: a copy of its memory advanced with these episodes."
    ]
    seen = [float(row["bonus_raw"]) ** -2 for row in rows(tmp_path / "out")]  # N of 1/√N
    np.testing.assert_allclose(
        np.array(seen[5:]), np.array(seen[:5]) + 1, rtol=1e-6
    )  # the same cells, visited once more


def test_an_episodic_memory_starts_afresh(tmp_path: Path) -> None:
    about = "--explorer cae --bonus.scope episodic --bonus.ridge 0.25".split()
    run = train(
        tmp_path / "run", *"ppo --env CartPole-v1 --num-envs 2 --rollout 64 --steps 128".split(), *about
    )
    trained = load_trained(run)
    novelty = Novelty(trained)
    assert novelty.advances
    with torch.no_grad():
        envs = Envs("CartPole-v1", 1, 5)
        first, _ = envs.step(trained.agent.policy(envs.obs))
        seen = trained.agent.see(first.obs)
        phi = trained.explorer.phi(seen, first.action, None)  # type: ignore[operator]
        expected = float(phi.norm()) / 0.5  # √(φᵀφ/λ): nothing is remembered yet
        assert novelty(first)[0] == pytest.approx(expected, rel=1e-5)
        again = Transition(**{**first.asdict(), "episode_start": torch.tensor([False])})
        assert novelty(again)[0] == pytest.approx(
            expected / np.sqrt(1 + expected**2), rel=1e-4
        )  # b/(1 + b) of b = β²
        assert novelty(first)[0] == pytest.approx(expected, rel=1e-5)
    _, notes = explain(run, tmp_path / "out", episodes=1)
    assert notes[:1] == ["The memory of cae is reset in each episode and fills up during it (in a copy)."]


def test_without_an_explorer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(
        tmp_path / "run", *"dqn --env RiverSwim-6-v0 --steps 50 --learning-starts 20 --hidden 8".split()
    )
    main(["explain", str(run), "--out", str(tmp_path / "out"), "--episodes", "1", "--max-steps", "4"])
    out = capsys.readouterr().out
    assert "This run has no explorer: the bonus is 0 everywhere." in out
    assert out.endswith(f"page: {tmp_path}/out/index.html\n")
    assert {(row["bonus_raw"], row["row"]) for row in rows(tmp_path / "out")} == {("0", "0")}


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mujoco")
    flags = (
        "td3 --env Hopper-v4 --explorer cae --steps 60 --learning-starts 50 --hidden 16 16 --batch-size 16"
    )
    return train(tmp_path_factory.mktemp("hopper") / "run", *flags.split())


def test_where_nothing_can_be_drawn(
    hopper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "none")
    main(["explain", str(hopper), "--out", str(tmp_path / "out"), "--episodes", "1", "--max-steps", "5"])
    out, err = capsys.readouterr()
    assert out.startswith("No frames: they cannot be rendered here: ")
    assert "got 'none'" in out.splitlines()[0]
    assert err == ""
    shown = data(tmp_path / "out")
    assert (shown["frames"], shown["shape"]) == ([], None)
    assert all(step["raw"] > 0 for step in shown["episodes"][0]["steps"])


def test_mujoco_draws_without_a_screen(hopper: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "critex.cli",
        "explain",
        str(hopper),
        "--out",
        str(tmp_path),
        "--max-steps",
        "3",
    ]
    environment = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "DISPLAY")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    if "No frames" in done.stdout:
        pytest.skip(done.stdout.splitlines()[0])
    frames = data(tmp_path)["frames"]
    assert len(frames) == 9
    assert picture(frames[0]).shape == (320, 320, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["RUN", "--episodes", "0"], "episodes is 0; it must be at least 1"),
        (["RUN", "--max-steps", "0"], "max_steps is 0; it must be at least 1"),
        (["RUN", "--out", "RUN"], "is a run; write the page to another directory"),
    ],
)
def test_bad_input(
    arguments: list[str], message: str, sea: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["explain", *(str(sea) if argument == "RUN" else argument for argument in arguments)])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
