"""The ten-lines example pays the same bonuses as the library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import critex
from examples import cae_in_ten_lines

EXAMPLE = Path(__file__).parents[1] / "examples" / "cae_in_ten_lines.py"


def test_ten_lines_equal_the_library() -> None:
    theirs = cae_in_ten_lines.run(steps=300, seed=3)

    torch.manual_seed(3)
    env = gym.make("Pendulum-v1")
    env.action_space.seed(3)
    critic = cae_in_ten_lines.Critic(3, 1)
    explorer = critex.CAE(critic.embed, alpha=0.2, ridge=1.0)
    obs, _ = env.reset(seed=3)
    ours = []
    for _ in range(300):
        action = env.action_space.sample()
        next_obs, _, terminated, truncated, _ = env.step(action)
        ours.append(explorer(obs[None], action[None]).item())
        obs = env.reset()[0] if terminated or truncated else next_obs
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)  # the library returns single precision


def test_example_imports_nothing_of_ours_and_is_about_ten_lines() -> None:
    source = EXAMPLE.read_text()
    assert not re.search(r"^\s*(import|from) critex", source, re.MULTILINE)
    block = source.split("# --- CAE")[1].split("# -----")[0].splitlines()[1:]
    code = [line for line in block if line.strip() and not line.strip().startswith(("class", "def"))]
    assert len(code) <= 12


SHORT = {
    "dqn": {"steps": 1200, "learning_starts": 400},
    "sac": {"steps": 420, "learning_starts": 390},
    "ppo": {"steps": 1024},
}


def without(source: str, *marks: str) -> str:
    """The file with the marked lines deleted; a line counts by the mark that it ends with."""
    return "\n".join(
        line for line in source.splitlines() if not line.endswith(tuple(f"# {m}" for m in marks))
    )


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("marks", [(), ("CAE+",), ("CAE", "CAE+")])
def test_loops_run_with_and_without_their_marked_lines(name: str, marks: tuple[str, ...]) -> None:
    source = (EXAMPLE.parent / f"{name}.py").read_text()
    if marks == ("CAE+",) and "# CAE+" not in source:
        marks = ("CAE", "CAE+")
    left = without(source, *marks)
    assert ("critex" in left) == (marks != ("CAE", "CAE+"))
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(left, name, "exec"), scope)
    returns = scope["main"](**SHORT[name])
    assert returns and np.isfinite(returns).all()


@pytest.mark.parametrize("name", SHORT)
def test_the_difference_is_ten_lines_or_fewer(name: str) -> None:
    source = (EXAMPLE.parent / f"{name}.py").read_text()
    assert 0 < len(source.splitlines()) - len(without(source, "CAE", "CAE+").splitlines()) <= 10
