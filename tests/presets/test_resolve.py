"""default < family < preset, and exploration from a single source."""

from __future__ import annotations

from itertools import product

import pytest

from critex.algorithms import ALGORITHMS
from critex.errors import UserError
from critex.explorers import EXPLORERS, CAEPlusConfig, EllipticalConfig
from critex.presets import default_config, families, preset_options, presets, settings

DOOR = "MiniGrid-DoorKey-8x8-v0"
IDS = ("CartPole-v1", "DeepSea-10-v0", DOOR, "Hopper-v4", "MiniHack-MultiRoom-N4-v0", "Pendulum-v1")


def test_dqn_on_minigrid_learns_early_and_forgets_each_episode() -> None:
    cfg = default_config("dqn", "cae", None, DOOR)
    assert (cfg.learning_starts, cfg.train_every, cfg.bonus.scope) == (1_000, 4, "episodic")
    assert default_config("dqn", "cae", None, "CartPole-v1").learning_starts == 10_000


def test_minigrid_has_sixteen_envs_unless_the_user_says_otherwise() -> None:
    plain, named = default_config("ppo", "cae", None, DOOR), default_config("ppo", "cae", "minigrid", DOOR)
    assert plain.num_envs == named.num_envs == 16 and plain.hidden == (512,) and plain.env == DOOR
    assert plain.bonus == named.bonus and plain.alpha == named.alpha == 0.003
    assert default_config("ppo", "cae", None, "HalfCheetah-v4").num_envs == 1


def test_a_preset_keeps_the_learner_and_replaces_all_of_the_exploration() -> None:
    cfg = default_config("ppo", "cae", "official", DOOR)
    assert cfg.num_envs == 16 and cfg.bonus.strategy == "ucb_squared" and cfg.reward_clip == 1.0
    assert cfg.alpha == 1.0  # not the family's, which belongs to another scaling
    sea = default_config("dqn", "cae", "paper", "DeepSea-10-v0")
    assert (sea.hidden, sea.bonus_in, sea.bonus.phi_norm) == ((128,), "reward", None)


def test_alpha_and_bonus_come_from_one_source() -> None:
    """Whatever the family says about the exploration is gone as soon as the preset says anything about it."""
    for algorithm, explorer, preset, env in product(ALGORITHMS, EXPLORERS, presets(), IDS):
        alone = settings(algorithm, explorer, preset, env)
        family = settings(algorithm, explorer, None, env)
        from_preset = settings(algorithm, explorer, preset, env.replace("MiniGrid-", "Other-")).exploration
        if family.exploration is None or env != DOOR or from_preset is None:
            continue
        assert alone.exploration == from_preset


def test_a_preset_without_a_word_on_an_explorer_leaves_the_familys() -> None:
    counts = default_config("ppo", "counts", "official", DOOR)
    assert (counts.alpha, counts.bonus.scaling, counts.bonus.scope) == (0.01, "welford", "episodic")


@pytest.mark.parametrize(
    ("n", "width"), [(8, 128), (10, 128), (12, 256), (14, 256), (24, 512), (40, 1024), (50, 1536), (60, 2048)]
)
def test_formulas_of_the_size(n: int, width: int) -> None:
    cfg = default_config("dqn", "cae", None, f"DeepSea-{n}-v0?randomize_actions=false")
    assert cfg.hidden == (width,) and cfg.hidden[0] > n * (n + 1) / 2
    assert (cfg.bonus.rebuild_every, cfg.eval_every, cfg.steps) == (20 * n, 20 * n, 50 * n * n)


def test_names_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="preset minigrid is for the environments of its family; CartPole-v1"):
        default_config("ppo", "cae", "minigrid", "CartPole-v1")
    with pytest.raises(UserError, match="unknown preset 'offical'; did you mean official"):
        default_config("ppo", "cae", "offical", "CartPole-v1")
    with pytest.raises(UserError, match="known: official, official_root, paper|did you mean paper"):
        preset_options(EllipticalConfig, "minigrid")


def test_every_combination_of_names_gives_a_config() -> None:
    """So every option that a source names exists, and has a value that its config accepts."""
    for algorithm, explorer, env in product(ALGORITHMS, [*EXPLORERS, "e3b*noveld", "rnd+counts"], IDS):
        for preset in (None, *presets()):
            default_config(algorithm, explorer, preset, env)
    assert {"deepsea", "minigrid"} <= set(families())


def test_options_for_a_loop_of_ones_own() -> None:
    assert preset_options(EllipticalConfig, "official")["ridge"] == 0.1
    plus = preset_options(CAEPlusConfig, "official")
    assert plus["bias_in_bonus"] is False and not {"u_dim", "hidden"} & plus.keys()
    assert "bias_in_bonus" not in preset_options(EllipticalConfig, "paper")
