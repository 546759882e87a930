"""RIDE: impact over the root of the episodic count; the rest is ICM's."""

from __future__ import annotations

import pytest
from torch import nn

from critex.errors import UserError
from critex.explorers import ICM, RIDE, ExplorationConfig, ICMConfig, RIDEConfig, make_explorer
from tests.explorers.rollouts import D, episode, flat, place, rollout

HOME, P, Q = [0.0, 0.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]


def test_closed_form() -> None:
    """0 → p → 0 → p → p → q: lengths 5, 5, 5, 0, √26 over the roots of 1, 2, 2, 3, 1 visits."""
    explorer = RIDE(RIDEConfig(width=D, key="obs"), place(num_envs=1))
    explorer.encoder = nn.Identity()
    steps = episode([HOME, P, HOME, P, P, Q])
    expected = [5.0, 5 / 2**0.5, 5 / 2**0.5, 0.0, 26**0.5]
    for _ in range(2):  # counts are of the episode
        assert explorer.bonus_rollout(steps).flatten().tolist() == pytest.approx(expected)


def test_the_key_decides() -> None:
    explorer = RIDE(RIDEConfig(width=D, key="position"), place(num_envs=1))
    explorer.encoder = nn.Identity()
    steps = episode([HOME, P, HOME], position=[[1], [1]])
    assert explorer.bonus_rollout(steps).flatten().tolist() == pytest.approx([5.0, 5 / 2**0.5])


def test_networks_and_loss_are_those_of_icm() -> None:
    ride, icm = RIDE(RIDEConfig(), place()), ICM(ICMConfig(), place())
    icm.load_state_dict({k: v for k, v in ride.state_dict().items() if not k.startswith("tally")})
    batch = flat(rollout(5))
    assert ride.loss(batch).item() == icm.loss(batch).item()
    assert ride.card()["parameters_added"] == icm.card()["parameters_added"]


def test_counts_of_an_episode_cannot_be_measured_again() -> None:
    with pytest.raises(UserError, match="ride has none"):
        make_explorer(ExplorationConfig(explorer="ride", recompute=True), place())


def test_measure_is_refused() -> None:
    """It would be ICM's bonus, which RIDE inherits."""
    steps = flat(rollout(3))
    with pytest.raises(UserError, match="counts of its episode"):
        RIDE(RIDEConfig(), place()).measure(steps.obs, steps.action, steps.next_obs)
