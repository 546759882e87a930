"""Options of PPO that decide when an update ends, and what a run does about whole rollouts and recomputed bonuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from critex.algorithms import ppo
from critex.errors import UserError
from critex.explorers import EllipticalConfig
from tests.algorithms.conftest import metrics

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "steps": 640,
    "rollout": 64,
    "num_envs": 2,
    "minibatches": 4,
    "epochs": 6,
    "hidden": (16,),
    "log_every": 1,
}


def test_target_kl_ends_an_update_after_the_epoch_that_exceeds_it(
    train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    minimise = ppo.minimise
    monkeypatch.setattr(ppo, "minimise", lambda *args: (steps.append(1), minimise(*args)))
    never = metrics(train("ppo", "never", **SMALL))
    every, steps[:] = len(steps), []
    assert metrics(train("ppo", "large", **SMALL, target_kl=1e9)) == never
    assert len(steps) == every
    steps.clear()
    train("ppo", "zero", **SMALL, target_kl=0.0)
    assert len(steps) == every // SMALL["epochs"]  # one epoch an update


def test_steps_beyond_whole_rollouts_are_announced(
    train: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    train("ppo", **{**SMALL, "steps": 700})
    assert "whole rollouts of 128 steps: 640 of 700" in capsys.readouterr().err


def test_recompute_without_an_explorer_changes_nothing(train: Callable[..., Path]) -> None:
    assert metrics(train("ppo", "a", **SMALL, recompute=True)) == metrics(train("ppo", "b", **SMALL))


def test_recompute_cannot_know_first_steps(train: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="recompute cannot tell which step begins an episode"):
        train("ppo", **SMALL, recompute=True, explorer="cae", bonus=EllipticalConfig(zero_first=True))
