"""The ten-lines example pays the same bonuses as the library."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import numpy as np
import torch

import critex

EXAMPLE = Path(__file__).parents[1] / "examples" / "cae_in_ten_lines.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cae_in_ten_lines", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ten_lines_equal_the_library() -> None:
    example = load()
    theirs = example.run(steps=300, seed=3)

    torch.manual_seed(3)
    env = gym.make("Pendulum-v1")
    env.action_space.seed(3)
    critic = example.Critic(3, 1)
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
