"""Options of PPO: when an update ends, whole rollouts, no recomputed bonuses, hand-written gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from critex.algorithms import ppo
from critex.errors import UserError
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


@pytest.mark.parametrize("explorer", ["cae", "e3b"])  # a lifelong memory would not help the second
def test_recompute_needs_replayed_transitions(explorer: str, train: Callable[..., Path]) -> None:
    """Measured again, a bonus would contain its own step: the whole rollout is in A before the update."""
    with pytest.raises(UserError, match="recompute is for replayed transitions"):
        train("ppo", **SMALL, recompute=True, explorer=explorer)


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_fast_and_autograd_agree_to_rounding(env: str, train: Callable[..., Path]) -> None:
    options = {**SMALL, "env": env, "explorer": "cae", "alpha": 0.1}
    fast, slow = (metrics(train("ppo", f"fast{fast}", fast=fast, **options)) for fast in (True, False))
    assert len(fast) > 5
    for ours, theirs in zip(fast, slow, strict=True):
        assert ours.pop("kind") == theirs.pop("kind")
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)
