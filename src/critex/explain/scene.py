"""Play one whole episode of an agent with a camera, for pictures of its path and its bonus."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critex.algorithms import UNLISTED, algorithm_module, load_config
from critex.data import Transition, derive_seed
from critex.data.tree import Tree, tree_map
from critex.envs import make
from critex.envs.families import family_of
from critex.report.trajectory import Trajectory
from critex.run import read_config
from critex.run.evaluation import Policy
from critex.run.seeding import preserved_rng
from critex.trained import load_trained

SCENES = ("vizdoom_explore", "habitat")
"""The families whose environments have a map: `fog` and `path`."""


@dataclass(frozen=True)
class SceneEpisode:
    """One episode from beginning to end."""

    env: str
    trajectory: Trajectory
    frames: list[NDArray[np.uint8]]
    """What the camera saw before each step, [H, W, 3]."""
    bonus: list[float]
    """The scaled bonus of each step; zeros if nothing measures it."""


def has_scene(env_id: str) -> bool:
    """Whether the environment has a map to draw paths on."""
    return family_of(env_id) in SCENES


def play_scene(
    env_id: str, policy: Policy, seed: int, bonus: Callable[[Transition], tuple[float, float]] | None = None
) -> SceneEpisode:
    """Play the episode of this seed; `bonus` gives the (raw, scaled) bonus of a transition [1]."""
    frames, paid = [], []
    with closing(make(env_id, render_mode="rgb_array")) as env, preserved_rng(), torch.no_grad():
        torch.manual_seed(derive_seed(seed, "policy"))
        obs, info = env.reset(seed=derive_seed(seed, "scene"))
        position, start, ended = _row(info["position"]), True, False
        while not ended:
            frames.append(np.asarray(env.render()))
            action = policy(_batch(obs))
            after, reward, terminated, truncated, info = env.step(action[0].numpy())
            step = Transition(
                _batch(obs),
                action,
                torch.tensor([float(reward)]),
                _batch(after),
                torch.tensor([terminated]),
                torch.tensor([truncated]),
                torch.tensor([start]),
                info={"start_position": position, "position": (position := _row(info["position"]))},
            )
            paid.append(bonus(step)[1] if bonus else 0.0)
            obs, start, ended = after, False, terminated or truncated
        return SceneEpisode(env_id, Trajectory.of(env), frames, paid)


def trajectory_of(run: Path) -> Trajectory | None:
    """The path of a run's agent in its evaluation environment, with the same start for every run.

    None if the environment has no map. A `UserError` if the agent cannot be played here.
    """
    name, data = read_config(run)
    if not has_scene(str(data.get("env"))):
        return None
    if name in UNLISTED.own:
        cfg = load_config(name, data)
        policy = algorithm_module(name).Agent(cfg).policy
    else:
        trained = load_trained(run)
        cfg, policy = trained.cfg, trained.agent.policy
    return play_scene(getattr(cfg, "eval_env", "") or cfg.env, policy, seed=0).trajectory


def _batch(obs: Any) -> Tree:
    """An observation as tensors [1, …]."""
    return tree_map(lambda x: torch.from_numpy(x)[None], obs)


def _row(position: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(position)[None]
