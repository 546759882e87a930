"""The paper's coefficients as data."""

from __future__ import annotations

import pytest
from critex.algorithms.paper import paper_settings

from critex.algorithms import ALGORITHMS, algorithm_module, default_config
from critex.envs import make
from critex.errors import UserError

TASKS = ("Swimmer", "Ant", "Walker2d", "Hopper", "HalfCheetah", "Humanoid")
ALPHA = {  # the table of the paper's appendix, row by row
    "sac": (0.2, 0.7, 1.0, 0.4, 0.4, 4.0),
    "ppo": (0.1, 0.2, 0.13, 0.14, 0.5, 0.1),
    "td3": (0.1, 0.3, 0.8, 0.3, 3.7, 6.0),
    "dsac": (0.1, 1.0, 3.0, 2.0, 3.0, 4.5),
}


@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("algorithm", ALPHA)
def test_alpha(algorithm: str, version: str) -> None:
    got = [paper_settings(algorithm, f"{task}-{version}")["alpha"] for task in TASKS]
    assert got == list(ALPHA[algorithm])


def test_steps() -> None:
    assert paper_settings("sac", "Hopper-v4")["steps"] == 1_000_000
    assert paper_settings("ppo", "Humanoid-v5")["steps"] == 4_000_000
    assert (
        paper_settings("dsac", "Hopper-v4")["steps"] == 20_010_000
    )  # 10⁶ iterations of 20 steps, and the warm-up
    assert paper_settings("dsac", "Humanoid-v4")["steps"] == 40_010_000


@pytest.mark.skipif("dsac" not in ALGORITHMS, reason="no DSAC-T here")
def test_iterations_of_dsac_are_its_own() -> None:
    cfg = algorithm_module("dsac").Config()
    assert (
        paper_settings("dsac", "Ant-v5")["steps"] - cfg.learning_starts
    ) / cfg.steps_per_update == 1_000_000


def test_ant_has_111_dimensions_for_dsac_alone() -> None:
    pytest.importorskip("mujoco")
    env_id = paper_settings("dsac", "Ant-v4")["env"]
    assert make(env_id).observation_space.shape == (111,)
    assert "env" not in paper_settings("sac", "Ant-v4")
    assert "env" not in paper_settings("dsac", "Ant-v5")  # has the contact forces by default


@pytest.mark.parametrize("preset", ["paper", "official"])
def test_networks_of_cae_plus_on_minihack(preset: str) -> None:
    def sizes(env_id: str, preset: str | None) -> tuple[int | None, int]:
        bonus = default_config("ppo", "cae_plus", preset, env_id).bonus
        return bonus.u_dim, bonus.hidden

    assert sizes("MiniHack-Freeze-Horn-Restricted-v0", preset) == (128, 256)
    assert sizes("MiniHack-Freeze-Horn-Restricted-v0", None) == sizes("CartPole-v1", preset) == (None, 64)
    assert default_config("ppo", "cae", preset, "MiniHack-Freeze-Horn-Restricted-v0").explorer == "cae"


def test_elsewhere_it_says_nothing() -> None:
    assert paper_settings("dqn", "CartPole-v1") == paper_settings("ppo", "MiniGrid-DoorKey-8x8-v0") == {}


@pytest.mark.parametrize("env_id", ["Reacher-v4", "Hopper-v3"])
def test_a_task_the_paper_does_not_have(env_id: str) -> None:
    with pytest.raises(UserError, match=f"no α for {env_id}.*Swimmer-v4.*Humanoid-v5"):
        paper_settings("td3", env_id)
