"""MiniHack: seeds decide levels and games, the paper's nine tasks, final observations, resets that leave nothing behind."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("minihack")

from critex.envs import Envs, make
from critex.envs.minihack import archive
from critex.errors import UserError

MULTI_ROOM, LAVA, HORN = (
    f"MiniHack-{name}-v0" for name in ("MultiRoom-N4", "LavaCross-Restricted", "Freeze-Horn-Restricted")
)
TASKS = {  # number of actions, steps before the timeout
    "MultiRoom-N4": (8, 120),
    "MultiRoom-N4-Locked": (10, 120),
    "MultiRoom-N6": (8, 240),
    "MultiRoom-N6-Locked": (10, 240),
    "MultiRoom-N10-OpenDoor": (8, 360),
    "Freeze-Horn-Restricted": (11, 250),
    "Freeze-Wand-Restricted": (11, 250),
    "Freeze-Random-Restricted": (12, 250),
    "LavaCross-Restricted": (16, 250),
}


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all((a[key] == b[key]).all() for key in a)


@pytest.mark.parametrize("name", TASKS)
def test_the_nine_tasks(name: str) -> None:
    actions, limit = TASKS[name]
    env = make(f"MiniHack-{name}-v0")
    obs, info = env.reset(seed=1)
    assert env.action_space.n == actions and env.unwrapped._max_episode_steps == limit
    assert {key: part.shape for key, part in obs.items()} == {
        "glyphs": (21, 79),
        "blstats": (27,),
        "message": (256,),
    }
    assert obs in env.observation_space
    assert tuple(info["position"]) == (obs["blstats"][1], obs["blstats"][0])
    env.close()


@pytest.mark.parametrize("env_id", [MULTI_ROOM, LAVA, "MiniHack-Room-Monster-5x5-v0", "NetHackScore-v0"])
def test_a_seed_is_a_level_and_a_game(env_id: str) -> None:
    first, second = make(env_id), make(env_id)
    second.reset(seed=3)  # another past
    second.step(0)
    (a, _), (b, _) = first.reset(seed=7), second.reset(seed=7)
    assert same(a, b)
    for action in np.random.default_rng(0).integers(8, size=60).tolist():
        a, *rest = first.step(action)
        b, *others = second.step(action)
        assert same(a, b) and rest[:3] == others[:3]
        if rest[1] or rest[2]:
            break
    levels = [first.reset(seed=seed)[0]["glyphs"].tobytes() for seed in range(6)]
    assert len(set(levels)) >= 5
    first.close()
    second.close()


def test_without_a_seed_the_sequence_goes_on() -> None:
    env = make(MULTI_ROOM)
    runs = [[env.reset(seed=s)[0]["glyphs"].tobytes() for s in (5, None, None)] for _ in range(2)]
    assert runs[0] == runs[1] and len(set(runs[0])) == 3
    env.close()


def test_pythons_generator_is_left_alone() -> None:
    env = make(HORN)
    random.seed(0)
    expected = random.Random(0).random()
    env.reset(seed=1)
    assert random.random() == expected
    env.close()


def test_resume_is_exact() -> None:
    import torch

    envs = Envs(MULTI_ROOM, 2, seed=3)
    rng = torch.Generator().manual_seed(0)
    for _ in range(130):  # past the first timeout
        envs.step(torch.randint(8, (2,), generator=rng))
    other = Envs(MULTI_ROOM, 2, seed=3)
    other.load_state_dict(envs.state_dict())
    for _ in range(30):
        action = torch.randint(8, (2,), generator=rng)
        (a, obs), (b, others) = envs.step(action), other.step(action)
        assert same(obs, others) and same(a.next_obs, b.next_obs) and torch.equal(a.reward, b.reward)
    envs.close()
    other.close()


def test_a_timeout_is_a_truncation_and_its_observation_is_real() -> None:
    env = make(MULTI_ROOM)
    env.reset(seed=0)
    for _ in range(120):
        obs, _, terminated, truncated, info = env.step(0)
    assert truncated and not terminated
    assert tuple(info["position"]) == (obs["blstats"][1], obs["blstats"][0]) != (0, 0)
    env.close()


def test_death_is_seen() -> None:
    env = make(LAVA)
    env.reset(seed=0)
    for _ in range(100):
        obs, reward, terminated, truncated, info = env.step(1)  # east, into the lava
        if terminated:
            break
    assert terminated and not truncated and reward == 0
    assert b"lava" in obs["message"].tobytes() and info["position"].all()
    env.close()


def test_many_resets_leave_nothing_behind() -> None:
    """No process, no open file, no memory beyond the 1.8 kB that NLE's own reset loses."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def files() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    env = make(MULTI_ROOM)
    for seed in range(50):
        env.reset(seed=seed)
    before, opened = resident(), files()
    for seed in range(200):
        env.reset(seed=seed)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not children and files() == opened
    assert resident() - before < 200 * 4096
    env.close()


def test_a_position_may_tell_whole_maps_apart() -> None:
    env = make("MiniHack-Room-5x5-v0?position=grid")
    obs, info = env.reset(seed=1)
    start = info["position"]
    assert tuple(start[:2]) == (obs["blstats"][1], obs["blstats"][0])
    seen = {obs["glyphs"].tobytes(): int(start[2])}
    for action in np.random.default_rng(0).integers(8, size=30).tolist():
        obs, *_, info = env.step(action)
        assert seen.setdefault(obs["glyphs"].tobytes(), int(info["position"][2])) == info["position"][2]
    assert len(seen) == len(set(seen.values())) > 3  # one hash for each map
    env.close()


def test_the_archive_is_what_nethacks_own_tool_writes(tmp_path: Path) -> None:
    from minihack.base import HACKDIR

    for name, content in (("dungeon", b"abc"), ("mylevel.lev", b""), ("quest.dat", bytes(range(256)))):
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / name).write_bytes(content)
    names = sorted(file.name for file in (tmp_path / "lib").iterdir())
    subprocess.run([f"{HACKDIR}/dlb", "cf", "../nhdat", *names], cwd=tmp_path / "lib", check=True)
    assert archive(tmp_path / "lib") == (tmp_path / "nhdat").read_bytes()


def test_a_task_that_forbids_seeds_is_refused() -> None:
    with pytest.raises(UserError, match="NetHackChallenge-v0 forbids seeds"):
        Envs("NetHackChallenge-v0", 1)


def test_a_level_that_does_not_compile_is_an_error() -> None:
    env = make("MiniHack-Room-5x5-v0")
    with pytest.raises(UserError, match="cannot compile"):
        env.unwrapped.update("MAZE: nonsense")
    env.close()
