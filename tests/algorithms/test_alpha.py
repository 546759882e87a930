"""`--alpha auto` in every algorithm: it follows the scales, is logged, and resumes exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from critex.algorithms import ALGORITHMS, algorithm_module, ppo
from critex.explorers import _alpha
from critex.run import Run
from critex.trained import load_trained
from tests.algorithms.conftest import QUIET, metrics
from tests.algorithms.test_marked_lines import SMALL


class PowerCut(Exception):
    """Ends a run without a checkpoint."""


@pytest.mark.parametrize("name", ALGORITHMS.own)
def test_auto(name: str, train: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_alpha, "WARMUP", 50)
    options: dict[str, Any] = SMALL[name] | {"explorer": "cae", "alpha": "auto", "checkpoint_every": 150}
    options["steps"] = min(options["steps"], 600)
    whole = train(name, "whole", **options)
    alphas = [line["alpha"] for line in metrics(whole) if line["kind"] == "train"]
    assert len(set(alphas)) == len(alphas) > 1  # it moves
    assert all(0 < line["bonus_share"] < 1 for line in metrics(whole) if line["kind"] == "train")
    if name == "dqn":
        assert load_trained(whole).explorer.alpha.value == alphas[-1]

    module = algorithm_module(name)
    cfg = module.Config(out=str(tmp_path / "killed"), **QUIET, **options)
    with monkeypatch.context() as patch, pytest.raises(PowerCut), Run.create(name, cfg) as run:

        def due() -> bool:
            if run.step > 0.7 * cfg.steps:
                raise PowerCut
            return run._log.due(run.step)

        patch.setattr(run, "due", due)
        module.train(cfg, run)
    with Run.open(tmp_path / "killed", cfg) as run:
        module.train(cfg, run)
    assert metrics(tmp_path / "killed") == metrics(whole)


def test_a_decay_ends_with_the_last_whole_rollout() -> None:
    cfg = ppo.Config(
        env="Pendulum-v1", steps=3000, rollout=800, num_envs=2, explorer="cae", alpha="auto_decay"
    )
    box = gym.spaces.Box(-1, 1, (3,))
    assert ppo.PPO(cfg, box, box, torch.device("cpu")).explorer.alpha.total == 1600
