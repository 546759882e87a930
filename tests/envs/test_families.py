import sys
import warnings
from pathlib import Path

import gymnasium as gym
import pytest

import critex.envs
from critex.envs import FAMILIES, make
from critex.errors import UserError


def test_built_ins_are_registered_and_any_size_can_be_made() -> None:
    critex.envs.register()
    critex.envs.register()  # again: nothing happens
    assert gym.make("DeepSea-50-v0").unwrapped.size == 50
    assert gym.make("RiverSwim-12-v0").unwrapped.size == 12
    assert "DeepSea-137-v0" not in gym.registry
    assert make("DeepSea-137-v0").observation_space.shape == (137 * 137,)


def test_keywords_reach_the_environment() -> None:
    assert (
        make("DeepSea-5-v0", mapping_seed=7).unwrapped.right.tolist()
        != make("DeepSea-5-v0").unwrapped.right.tolist()
    )
    assert make("CartPole-v1", max_episode_steps=7).spec.max_episode_steps == 7
    with pytest.raises(UserError, match="colour"):
        make("DeepSea-5-v0", colour="blue")


def test_mujoco_v4_with_its_options_and_without_a_warning() -> None:
    pytest.importorskip("mujoco")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        ant = make("Ant-v4", use_contact_forces=True)
    assert ant.observation_space.shape == (111,)
    with pytest.raises(UserError, match="use Hopper-v4 or Hopper-v5"):
        make("Hopper-v3")


@pytest.mark.parametrize(
    "wrong, hint",
    [
        ("CartPol-v1", "CartPole-v1"),
        ("Cartpole-v7", "CartPole-v1"),
        ("DeepSea-v0", "DeepSea-"),
        ("DeepSea-10", "mean DeepSea-10-v0 or"),  # without its version it would miss the settings of its id
        ("CartPole", "mean CartPole-v1"),
        ("swimmer-v4", "mean Swimmer-v4"),
        ("qqq-v0", "registry.*my_module:qqq-v0"),
        ("json:CartPol-v1", "mean json:CartPole-v1"),
        ("json:qqq-v0", "'json' does not register it"),
    ],
)
def test_an_unknown_id_gets_near_matches(wrong: str, hint: str) -> None:
    with pytest.raises(UserError, match=f"no environment '{wrong}'.*{hint}"):
        make(wrong)


@pytest.mark.parametrize("wrong", ["", "a b c"])
def test_malformed_ids_are_refused(wrong: str) -> None:
    with pytest.raises(UserError, match="no environment"):
        make(wrong)


@pytest.mark.parametrize(
    "env_id, install",
    [
        ("Hopper-v4", "critex[mujoco]"),
        ("MiniGrid-DoorKey-8x8-v0", "critex[minigrid]"),
        ("MiniHack-MultiRoom-N4-v0", "critex[minihack]"),
        ("NetHackScore-v0", "critex[minihack]"),
        ("VizdoomMyWayHome-v0", "critex[vizdoom]"),
        ("ALE/Pong-v5", "ale-py"),
        ("LunarLander-v3", "gymnasium[box2d]"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    env_id: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for family in FAMILIES.values():
        monkeypatch.setitem(sys.modules, family.imports, None)  # what import sees where it is not installed
    with pytest.raises(UserError) as caught:
        make(env_id)
    assert env_id in str(caught.value) and f'pip install "{install}"' in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_id_may_carry_options() -> None:
    env = make("DeepSea-4-v0?mapping_seed=7&randomize_actions=false")
    assert env.unwrapped.right.min() == 1
    with pytest.raises(UserError, match="depth"):
        make("DeepSea-4-v0?depth=3")


@pytest.mark.parametrize(
    "env_id", [":", ":CartPole-v1", ".relative:CartPole-v1", "a..b:CartPole-v1", "./a:CartPole-v1"]
)
def test_a_module_without_a_name_is_refused(env_id: str) -> None:
    with pytest.raises(UserError, match="is not the name of a module"):
        make(env_id)


def test_an_error_inside_a_module_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_module.py").write_text("int('no number')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="no number"):
        make("failing_module:Mine-v0")
