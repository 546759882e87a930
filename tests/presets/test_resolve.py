"""Settings of a family of environments are the defaults of its ids."""

from __future__ import annotations

import pytest
from critex.algorithms.families import family_settings, family_table

from critex.algorithms import default_config
from critex.envs import FAMILIES
from critex.errors import UserError
from critex.explorers import EXPLORERS

DOOR = "MiniGrid-DoorKey-8x8-v0"


def test_minigrid_has_sixteen_envs_unless_the_user_says_otherwise() -> None:
    plain, named = default_config("ppo", "cae", None, DOOR), default_config("ppo", "cae", "minigrid", DOOR)
    assert plain.num_envs == named.num_envs == 16 and plain.hidden == (128,)
    assert plain.bonus == named.bonus and plain.alpha == named.alpha
    assert default_config("ppo", "cae", None, "HalfCheetah-v4").num_envs == 1
    assert default_config("dqn", "cae", None, DOOR).num_envs == 1


def test_other_presets_keep_the_learner_and_bring_their_own_bonus() -> None:
    cfg = default_config("ppo", "cae", "official", DOOR)
    assert cfg.num_envs == 16 and cfg.bonus.strategy == "ucb_squared" and cfg.reward_clip == 1.0


def test_a_family_preset_elsewhere_is_refused() -> None:
    with pytest.raises(UserError, match="MiniGrid|minigrid"):
        default_config("ppo", "cae", "minigrid", "CartPole-v1")


def test_every_name_in_the_table_exists() -> None:
    for name, table in family_table().items():
        assert name in FAMILIES
        assert {*table["bonus"], *table["alpha"]} <= set(EXPLORERS)
        for explorer in EXPLORERS:
            default_config("ppo", explorer, name, DOOR)
            assert family_settings("ppo", explorer, DOOR)[0]["num_envs"] == 16
