from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from critex.envs.references import FORWARD, LEFT, RIGHT, follow_wall, random_steps
from critex.envs.trajectory import write_clip, write_trajectories
from critex.errors import UserError


def test_a_figure_of_trajectories(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    free = np.zeros((20, 30), bool)
    free[5:15, 5:25] = True
    revealed = free.copy()
    revealed[:, 15:] = False
    env = SimpleNamespace(
        plan=SimpleNamespace(reachable=free), revealed=revealed, path=[(6.5, 6.5), (10.5, 14.5)]
    )
    env.unwrapped = env
    write_trajectories(tmp_path / "a.svg", [("random", env), ("ppo+cae", env)])
    assert (tmp_path / "a.svg").stat().st_size > 1000


def test_a_clip_has_every_frame_and_a_growing_curve(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    frames = [np.full((40, 64, 3), 10 * t, np.uint8) for t in range(6)]
    write_clip(tmp_path / "a.gif", frames, [0.0, 1.0, 0.5, 2.0, 0.1, 0.0])
    clip = imageio.imread(tmp_path / "a.gif")
    assert clip.shape == (6, 100, 64, 3)
    red = [int(((f[40:, :, 0] > 150) & (f[40:, :, 1] < 90)).sum()) for f in clip]
    assert red == sorted(red) and red[-1] > red[0]
    with pytest.raises(UserError, match="one bonus for each frame"):
        write_clip(tmp_path / "b.gif", frames, [0.0])


def test_the_wall_follower_reads_the_depth() -> None:
    torch.manual_seed(0)
    blocked = torch.full((1, 30, 40, 4), 100, dtype=torch.uint8)
    blocked[:, :, 10:30, 3] = 2
    assert follow_wall(blocked).tolist() == [LEFT]
    beside = torch.full((1, 30, 40, 4), 100, dtype=torch.uint8)
    beside[:, :, 36:, 3] = 8
    assert follow_wall(beside).tolist() == [FORWARD]
    open_ = torch.full((200, 30, 40, 4), 100, dtype=torch.uint8)
    assert set(follow_wall(open_).tolist()) == {FORWARD, RIGHT}
    assert set(random_steps(open_).tolist()) == {FORWARD, LEFT, RIGHT}
