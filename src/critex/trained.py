"""A run as it stands: its agent and its explorer from the newest checkpoint, ready to act and to measure."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from critex.algorithms import algorithm_module, load_config
from critex.envs import Envs
from critex.errors import UserError
from critex.explorers import Explorer, Setting, explorer_class
from critex.run import Checkpoints, Damaged, load_part, read_config


@dataclass(frozen=True)
class Trained:
    """What a checkpoint holds; using it never touches the run."""

    path: Path
    algorithm: str
    cfg: Any
    agent: Any
    explorer: Explorer
    """With all that it remembers."""
    state: dict[str, Any]
    """The checkpoint itself."""

    @property
    def step(self) -> int:
        """Environment steps of training."""
        return int(self.state["run"]["step"])


def load_trained(path: Path, *, allow_import: bool = False) -> Trained:
    """A finished or interrupted run; a `UserError` where there is none, or its checkpoint does not fit."""
    name, data = read_config(path)
    cfg = load_config(name, data, allow_import=allow_import)
    state = Checkpoints(path).newest()
    with closing(Envs(cfg.env, 1, seed=0)) as envs:
        agent = algorithm_module(name).Agent(
            cfg, envs.observation_space, envs.action_space, torch.device("cpu")
        )
        space = getattr(
            agent, "seen_space", envs.observation_space
        )  # PPO's, which sees normalised observations
    explorer = explorer_class(cfg.explorer)(
        cfg.bonus, Setting(agent.embedding, space, cfg.num_envs, cfg.seed)
    )
    for part, module in (("agent", agent), ("explorer", explorer)):
        try:
            load_part(part, module, state["parts"])
        except (Damaged, KeyError, TypeError) as error:
            raise UserError(f"the checkpoint of {path} cannot be used: {error}") from error
    return Trained(path, name, cfg, agent, explorer, state)
