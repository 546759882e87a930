"""A trained agent: loaded from the newest checkpoint of a run, ready to act and to measure bonuses."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from critex.algorithms import UNLISTED, algorithm_module, load_config
from critex.algorithms.agent import Agent, MakeCritic
from critex.envs import Envs
from critex.errors import UserError
from critex.explorers import Explorer
from critex.run import Checkpoints, Damaged, load_part, read_config


@dataclass(frozen=True)
class Trained:
    """The content of a checkpoint; using it never changes the run."""

    algorithm: str
    cfg: Any
    agent: Agent
    state: dict[str, Any]
    """The checkpoint itself."""

    @property
    def explorer(self) -> Explorer:
        """The agent's explorer, with its memory."""
        return self.agent.explorer

    @property
    def step(self) -> int:
        """Environment steps of training."""
        return int(self.state["run"]["step"])


def load_trained(path: Path, critic: MakeCritic | None = None, *, allow_import: bool = False) -> Trained:
    """Load a finished or interrupted run; `critic` makes the critic of a run that was trained with a custom one.

    A `UserError` if there is no run, or if its checkpoint does not match its config.
    """
    name, data = read_config(path)
    if name in UNLISTED.own:
        raise UserError(
            f"{path} is a run of a fixed policy, with no agent to load; its metrics.jsonl has its scores"
        )
    cfg = load_config(name, data, allow_import=allow_import)
    state = Checkpoints(path).newest()
    with closing(Envs(cfg.env, 1, seed=0)) as envs:
        own = () if critic is None else (critic,)
        agent: Agent = algorithm_module(name).Agent(
            cfg, envs.observation_space, envs.action_space, torch.device("cpu"), *own
        )
    for part, module in (("agent", agent), ("explorer", agent.explorer)):
        try:
            load_part(part, module, state["parts"])
        except (Damaged, KeyError, TypeError) as error:
            raise UserError(f"the checkpoint of {path} cannot be used: {error}") from error
    return Trained(name, cfg, agent, state)
