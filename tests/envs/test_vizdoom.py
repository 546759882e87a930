import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from critex.data import tree_leaves
from critex.envs import Envs, make
from critex.errors import UserError

vzd = pytest.importorskip("vizdoom")

from critex.envs import vizdoom as explore  # noqa: E402

SMALL = "VizdoomExplore-train-v0?levels=MAP31,E3M8&resolution=40x30&steps=20"


def engines() -> int:
    """Processes of the game that this process has started."""
    count = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        count += "Name:\tvizdoom" in text and f"PPid:\t{os.getpid()}\n" in text
    return count


def test_the_split_is_complete_and_disjoint() -> None:
    split = explore.split_levels()
    assert {name: len(levels) for name, levels in split.items()} == {"train": 44, "val": 8, "test": 16}
    assert len(set(explore.all_levels())) == 68 and set(explore.all_levels()) == set(explore.static_maps())
    env = make("VizdoomExplore-test-v0").unwrapped
    assert set(env.levels) == set(split["test"]) and not set(env.levels) & set(split["train"])  # type: ignore[attr-defined]


def test_an_episode() -> None:
    env: Any = make(SMALL).unwrapped
    obs, info = env.reset(seed=3)
    level, row, column = info["position"]
    assert obs.shape == (30, 40, 4) and obs.dtype == np.uint8 and env.observation_space.contains(obs)
    assert env.plan.start[row, column] and len(np.unique(obs[..., 3])) > 3 and obs[..., :3].std() > 0
    shares = []
    for t in range(20):
        obs, reward, terminated, truncated, info = env.step(np.int64(t % 2))
        assert reward == 0 and not terminated and truncated == (t == 19) == ("measures" in info)
        assert info["position"][0] == level and env.plan.reachable[tuple(info["position"][1:])]
        shares.append(env.fog.coverage)
    assert shares == sorted(shares) and 0 < shares[0] < shares[-1] == info["measures"]["coverage"] < 1
    assert env.render().shape == (120, 160, 3)
    env.close()
    assert engines() == 0


def test_actions_turn_by_ten_degrees_and_walk_forward() -> None:
    env: Any = make(SMALL + "&sensors=habitat").unwrapped
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs) and not obs["gps"].any() and not obs["compass"].any()
    left = env.step(explore.LEFT)[0]["compass"][0]
    right = [env.step(explore.RIGHT)[0]["compass"][0] for _ in range(2)][-1]
    assert np.degrees([left, right]) == pytest.approx([10, -10], abs=0.2)
    env.step(explore.LEFT)
    gps = [env.step(explore.FORWARD)[0]["gps"] for _ in range(6)][-1]
    assert gps[0] > 1 and abs(gps[1]) < 0.1 * gps[0]  # straight ahead, more than a metre
    env.close()


def test_starts_differ_and_are_seeded() -> None:
    env: Any = make(SMALL).unwrapped
    starts = []
    for seed in (0, 1, 2, 0):
        obs, info = env.reset(seed=seed)
        starts.append((tuple(info["position"]), obs.tobytes()))
    assert starts[0] == starts[3] and len(set(starts)) == 3
    env.close()


def test_resume_is_exact_with_any_number_of_workers() -> None:
    saved = Envs(SMALL, 2, seed=5)
    generator = torch.Generator().manual_seed(0)
    for _ in range(27):
        saved.step(torch.randint(3, (2,), generator=generator))
    restored = Envs(SMALL, 2, seed=5, workers=2)
    restored.load_state_dict(saved.state_dict())
    for _ in range(20):
        action = torch.randint(3, (2,), generator=generator)
        (a, x), (b, y) = saved.step(action), restored.step(action)
        assert all(
            torch.equal(p, q) for p, q in zip(tree_leaves(a.asdict()), tree_leaves(b.asdict()), strict=True)
        )
        assert torch.equal(x, y)  # type: ignore[arg-type]
    episodes = saved.pop_episodes()
    assert episodes == restored.pop_episodes() and all(0 < e.measures["coverage"] < 1 for e in episodes)
    saved.close()
    restored.close()
    assert engines() == 0


def test_resets_start_no_further_process() -> None:
    env = make(SMALL)
    for seed in range(25):
        env.reset(seed=seed)
        assert engines() == 1
    env.close()
    assert engines() == 0


def test_bad_options_are_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for query, message in (
        ("levels=MAP99", "unknown level 'MAP99'"),
        ("resolution=81x61", "resolution '81x61' is not supported"),
        ("sensors=smell", "unknown sensors 'smell'"),
        ("steps=0", "at least 1"),
        ("colour=red", "cannot be made with colour"),
    ):
        with pytest.raises(UserError, match=message):
            make(f"VizdoomExplore-val-v0?{query}")
    monkeypatch.setattr(vzd, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(UserError, match="freedoom1.wad is missing; put it back with"):
        explore.wads()


def test_a_missing_depth_buffer_is_one_line() -> None:
    env: Any = make(SMALL).unwrapped
    game = env._open()
    game.close()
    game.set_depth_buffer_enabled(False)
    game.init()
    with pytest.raises(UserError, match="no depth buffer"):
        env.reset(seed=0)
    env.close()


def test_screens() -> None:
    assert explore.screen("80x60") == (vzd.ScreenResolution.RES_160X120, 2)
    assert explore.screen("64x48") == (vzd.ScreenResolution.RES_256X192, 4)
    assert explore.screen("160x120") == (vzd.ScreenResolution.RES_160X120, 1)


def test_shrinking_takes_the_mean() -> None:
    image = np.random.default_rng(0).integers(0, 256, (6, 9, 4), np.uint8)
    expected = image.reshape(2, 3, 3, 3, 4).astype(float).mean((1, 3))
    assert np.array_equal(explore.shrink(image, 3), np.floor(expected + 1e-9))


def test_the_relative_pose() -> None:
    gps, compass = explore.relative_pose((0, 0, np.pi / 2), (-32, 64, -np.pi / 2))
    assert gps.tolist() == pytest.approx([2, 1]) and abs(compass[0]) == pytest.approx(np.pi)
