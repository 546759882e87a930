"""Counts: closed forms, the elliptical bonus of one-hot features, and where they can be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from critex.errors import UserError
from critex.explorers import (
    CAEExplorer,
    Counts,
    CountsConfig,
    EllipticalConfig,
    ExplorationConfig,
    Setting,
    make_explorer,
)
from tests.algorithms.conftest import metrics
from tests.algorithms.conftest import train as train
from tests.explorers.rollouts import A, D, episode, flat, place, rollout

X, Y = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("kind", "expected"), [("inverse_root", [1, 2**-0.5, 3**-0.5, 0.5]), ("first_visit", [1, 0, 0, 0])]
)
def test_closed_forms(kind: Any, expected: list[float]) -> None:
    """The third visit of y is its third, however long ago the second was."""
    explorer = Counts(CountsConfig(kind=kind, key="obs"), place(num_envs=1))
    bonus = explorer.bonus_rollout(episode([X, Y, Y, Y, Y])).flatten().tolist()
    assert bonus == pytest.approx(expected)


def test_lifelong_counts_of_pairs_are_the_elliptical_bonus_of_one_hot_features() -> None:
    """φᵀA⁻¹φ = 1/(λ + visits before), λ = 1."""
    steps = rollout(40)
    cells = torch.randint(D, (40, 2), generator=torch.Generator().manual_seed(3))
    steps.obs = torch.eye(D)[cells]
    setting = place()
    counts = Counts(CountsConfig(of="state_action"), setting)
    cae = CAEExplorer(EllipticalConfig(embedding="block", scaling="none"), setting)
    torch.testing.assert_close(
        counts.bonus_rollout(steps).double(), cae.bonus_rollout(steps), rtol=1e-6, atol=0
    )
    batch = flat(steps)
    for mine, theirs in [
        (counts.measure(batch.obs, batch.action), cae.measure(batch.obs, batch.action)),
        (counts.measure_actions(torch.eye(D)), cae.measure_actions(torch.eye(D))),
    ]:
        torch.testing.assert_close(mine[0].double(), theirs[0], rtol=1e-6, atol=0)
    assert counts.measure_actions(torch.eye(D))[0].shape == (D, A)


def test_measuring_changes_nothing() -> None:
    explorer = Counts(CountsConfig(key="obs", kind="first_visit"), place(num_envs=1))
    explorer.bonus_rollout(episode([X, Y, Y]))
    for _ in range(2):
        raw, _ = explorer.measure(torch.zeros(2, D), torch.zeros(2), torch.tensor([Y, [0.0, 0.0, 1.0, 0.0]]))
        assert raw.tolist() == [0, 1]


def test_where_they_can_be_used() -> None:
    def made(bonus: CountsConfig, setting: Setting | None = None, **options: Any) -> None:
        make_explorer(ExplorationConfig(explorer="counts", bonus=bonus, **options), setting or place())

    made(CountsConfig(of="state_action"), bonus_in="value")
    made(CountsConfig(key="obs"), recompute=True)
    with pytest.raises(UserError, match="cannot compare actions"):
        made(CountsConfig(), bonus_in="value")
    with pytest.raises(UserError, match="scope lifelong"):
        made(CountsConfig(of="state_action", scope="episodic"), bonus_in="value")


def test_dqn_explores_deep_sea_with_the_oracle(train: Callable[..., Path]) -> None:
    """Without a random action: one of 64 sequences pays, and whoever counts tries them in turn."""
    options: dict[str, Any] = {
        "env": "DeepSea-6-v0", "steps": 1200, "learning_starts": 100, "train_every": 1, "target_every": 20,
        "epsilon_start": 0.0, "epsilon_end": 0.0, "learning_rate": 1e-3, "hidden": (64,), "batch_size": 64,
        "double_q": True, "alpha": 0.3, "explorer": "counts", "bonus": CountsConfig(of="state_action"),
        "bonus_in": "value",
    }  # fmt: skip
    returns = [line["return"] for line in metrics(train("dqn", **options)) if line["kind"] == "episode"]
    assert max(returns) == pytest.approx(0.99)
