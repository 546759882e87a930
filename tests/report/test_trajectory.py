"""Pictures of an episode: the path over the map, and a clip with the bonus as a curve."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from critex.errors import UserError
from critex.report.trajectory import Trajectory, write_clip, write_trajectories


def halfway() -> Trajectory:
    """A room of 10 × 20 cells whose western half was seen, on a walk along its diagonal."""
    free = np.zeros((20, 30), bool)
    free[5:15, 5:25] = True
    mask = free.copy()
    mask[:, 15:] = False
    env = SimpleNamespace(fog=SimpleNamespace(free=free, mask=mask), path=[(6.5, 6.5), (10.5, 14.5)])
    env.unwrapped = env
    return Trajectory.of(env)


def test_the_share_revealed() -> None:
    assert halfway().coverage == 0.5 and halfway().path.shape == (2, 2)


def test_one_panel_per_method_with_the_share_revealed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = ("random", "wall", "none", "cae", "rnd")
    write_trajectories(tmp_path / "a.svg", dict.fromkeys(names, halfway()))
    text = (tmp_path / "a.svg").read_text()
    assert all(f"<!-- {name}: 50.0% -->" in text for name in names)


def test_a_clip_has_every_frame_and_a_growing_curve(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    frames = [np.full((40, 64, 3), 10 * t, np.uint8) for t in range(6)]
    write_clip(tmp_path / "a.gif", frames, [0.0, 1.0, 0.5, 2.0, 0.1, 0.0], fps=10)
    clip = image.open(tmp_path / "a.gif")
    assert (clip.n_frames, clip.size, clip.info["duration"], clip.info["loop"]) == (6, (64, 100), 100, 0)
    red = []
    for t in range(6):
        clip.seek(t)
        strip = np.asarray(clip.convert("RGB")).astype(int)[40:]
        red.append(int(((strip[..., 0] > 150) & (strip[..., 1] < 90)).sum()))
    assert red == sorted(red) and red[-1] > red[0] > 0


@pytest.mark.parametrize(
    ("name", "bonus", "message"),
    [("b.gif", [0.0], "one bonus for each frame"), ("b.mp4", [0.0, 1.0], "written as .gif, not as b.mp4")],
)
def test_bad_clips_are_one_line(tmp_path: Path, name: str, bonus: list[float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_clip(tmp_path / name, [np.zeros((4, 4, 3), np.uint8)] * 2, bonus)
