"""Pictures of an agent with a camera, from a run on a Doom level: in `critex explain` and in `critex report`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from critex.cli import main
from critex.explain.scene import has_scene, play_scene, trajectory_of

pytest.importorskip("vizdoom")
pytest.importorskip("matplotlib")

ENV = "VizdoomExplore-val-v0?levels=MAP31&resolution=40x30&steps=12"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A learner of one rollout, a wall follower, and an algorithm without an evaluation env."""
    folder = tmp_path_factory.mktemp("scene")
    common = f"--env {ENV} --steps 32 --eval-every 32 --eval-episodes 1 --no-progress --no-tensorboard"
    learner = "--explorer noveld --rollout 16 --num-envs 2 --minibatches 1 --hidden 16 --core-width 16"
    for name, flags in (("ppo_recurrent", learner), ("reference", "--policy wall")):
        main(["train", name, *common.split(), *flags.split(), "--out", str(folder / name)])
    flags = f"--env {ENV} --steps 32 --learning-starts 8 --hidden 16 --no-progress --no-tensorboard".split()
    main(["train", "dqn", *flags, "--out", str(folder / "dqn")])
    return {name: folder / name for name in ("ppo_recurrent", "reference", "dqn")}


def test_every_run_is_drawn_in_the_same_scene_from_the_same_start(runs: dict[str, Path]) -> None:
    one, *others = (trajectory_of(path) for path in runs.values())
    assert one is not None
    for other in others:
        assert other is not None
        assert np.array_equal(one.free, other.free) and np.array_equal(one.path[0], other.path[0])
    assert one.path.shape == (13, 2) and 0 < one.coverage < 1
    again = trajectory_of(runs["ppo_recurrent"])
    assert again is not None and np.array_equal(one.path, again.path)


def test_the_whole_episode_is_on_the_page_of_explain(runs: dict[str, Path], tmp_path: Path) -> None:
    main(
        ["explain", str(runs["ppo_recurrent"]), "--out", str(tmp_path), "--episodes", "1", "--max-steps", "2"]
    )
    assert (tmp_path / "trajectory.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "episode.gif").read_bytes().startswith(b"GIF89a")
    page = (tmp_path / "index.html").read_text()
    assert 'src="trajectory.png"' in page and 'src="episode.gif"' in page


def test_the_paths_are_on_the_page_of_the_report(runs: dict[str, Path], tmp_path: Path) -> None:
    main(["report", *map(str, runs.values()), "--out", str(tmp_path)])
    (picture,) = tmp_path.glob("*-trajectories.png")
    page = (tmp_path / "index.html").read_text()
    assert picture.name in page and "Coverage, last 100 episodes" in page
    assert "Not everything could be used" not in page


def test_a_path_that_cannot_be_played_is_a_problem_of_the_report(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("config.toml", "metrics.jsonl", "card.json"):  # and no checkpoint
        (broken / name).write_bytes((runs["ppo_recurrent"] / name).read_bytes())
    main(["report", str(broken), "--out", str(tmp_path / "report")])
    assert "no path of ppo_recurrent+noveld: " in capsys.readouterr().err
    assert not list((tmp_path / "report").glob("*-trajectories.png"))


def test_other_environments_have_no_scene() -> None:
    assert has_scene(ENV) and has_scene("HabitatExplore-val-v0") and not has_scene("CartPole-v1")


def test_the_bonus_is_that_of_every_step() -> None:
    from critex.envs.references import follow_wall

    steps = []

    def measured(step: object) -> tuple[float, float]:
        steps.append(step)
        return 0.0, float(len(steps))

    episode = play_scene(ENV, follow_wall, 0, measured)
    assert episode.bonus == [float(t) for t in range(1, 13)] and len(episode.frames) == 12
    assert [bool(step.episode_start) for step in steps] == [True] + [False] * 11  # type: ignore[attr-defined]
    assert steps[-1].truncated.item() and steps[0].info["position"].shape == (1, 3)  # type: ignore[attr-defined]
