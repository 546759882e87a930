"""MiniGrid: one-hot views, positions, levels that differ, missions as words."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("minigrid")

import gymnasium as gym

from critex.envs.families import make
from critex.envs.minigrid import COLOURS, OBJECTS, WORDS, bag_of_words
from critex.errors import UserError

EMPTY = "MiniGrid-Empty-5x5-v0"


def test_the_view_is_one_hot() -> None:
    env, plain = make("MiniGrid-DoorKey-5x5-v0"), gym.make("MiniGrid-DoorKey-5x5-v0")
    obs, info = env.reset(seed=3)
    image = plain.reset(seed=3)[0]["image"]
    assert obs in env.observation_space and obs.shape == (7, 7, 21)
    for part, channel in zip(
        np.split(obs, [OBJECTS, OBJECTS + COLOURS], axis=-1), np.moveaxis(image, -1, 0), strict=True
    ):
        assert (part.sum(-1) == 1).all() and (part.argmax(-1) == channel).all()
    assert tuple(info["position"]) == tuple(plain.unwrapped.agent_pos[::-1])  # (row, column)
    (obs, *_, info), _ = env.step(2), plain.step(2)
    assert tuple(info["position"]) == tuple(plain.unwrapped.agent_pos[::-1])  # (row, column)


def test_missions_as_words() -> None:
    env = make(f"{EMPTY}?mission=words")
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space
    assert {WORDS[i] for i in np.flatnonzero(obs["mission"])} == {
        "get",
        "to",
        "the",
        "green",
        "goal",
        "square",
    }
    assert bag_of_words("pick up the zebra")[-1] == 1 and bag_of_words("go to, the goal")[-1] == 0


def test_the_vocabulary_knows_the_missions() -> None:
    for name in (
        "BabyAI-GoToObj-v0",
        "BabyAI-PutNextS5N1-v0",
        "MiniGrid-LavaGapS5-v0",
        "MiniGrid-Fetch-5x5-N2-v0",
    ):
        env = gym.make(name)
        for seed in range(5):
            assert bag_of_words(env.reset(seed=seed)[0]["mission"])[-1] == 0, name


def test_an_unknown_mission_option_is_refused() -> None:
    with pytest.raises(UserError, match="words"):
        make(f"{EMPTY}?mission=word")


def test_a_position_may_tell_whole_grids_apart() -> None:
    """DoorKey: the key in the hand, the door open, the direction; the cell is the same."""
    env = make("MiniGrid-DoorKey-5x5-v0?position=grid")
    _, info = env.reset(seed=3)
    game, start = env.unwrapped, info["position"]
    assert start.shape == (3,) and tuple(start[:2]) == tuple(game.agent_pos[::-1])
    assert (env.reset(seed=3)[1]["position"] == start).all()
    seen = {int(start[2])}
    for action in (0, 0, 0):  # turn; the fourth direction is the next one's first
        seen.add(int(env.step(action)[-1]["position"][2]))
    assert len(seen) == 4
    assert int(env.step(0)[-1]["position"][2]) == start[2]
    door = next(cell for cell in game.grid.grid if cell and cell.type == "door")
    door.is_open = True
    assert int(env._position()["position"][2]) not in seen
    with pytest.raises(UserError, match="grid"):
        make(f"{EMPTY}?position=room")
