"""A small training run, to be killed and resumed: `python toy.py create|resume <directory> [option=value …]`.

Two CartPoles, a Q-network trained from replay, every kind of state a real algorithm has, and draws from each of
the three global generators, so one that is not restored shows in the metrics.
"""

from __future__ import annotations

import copy
import random
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from critex.data import Replay
from critex.envs import Envs
from critex.errors import UserError
from critex.run import Interrupted, Run, RunConfig, from_dict, read_config


@dataclass
class Config(RunConfig):
    steps: int = 1_600
    num_envs: int = 2
    env: str = "CartPole-v1"
    buffer_size: int = 500
    chunk: int = 64
    seed: int = 3
    log_every: int = 30
    eval_every: int = 400
    eval_episodes: int = 3
    checkpoint_every: int = 100
    tensorboard: bool = False
    progress: bool = False


class Agent:
    """Q-learning with a target network; its counter of updates is state like any other."""

    def __init__(self) -> None:
        self.q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.target = copy.deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=1e-3)
        self.updates = 0

    def greedy(self, obs: Any) -> Tensor:
        return self.q(obs).argmax(-1)

    @torch.no_grad()
    def act(self, obs: Any) -> Tensor:
        if random.random() < 0.2:
            return torch.from_numpy(np.random.randint(0, 2, len(obs)))
        return (self.q(obs) + 0.01 * torch.randn(len(obs), 2)).argmax(-1)

    def update(self, batch: Any) -> Tensor:
        with torch.no_grad():
            target = batch.reward + 0.99 * ~batch.terminated * self.target(batch.next_obs).max(-1).values
        loss = (self.q(batch.obs).gather(1, batch.action[:, None])[:, 0] - target).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 50 == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.detach()

    def state_dict(self) -> dict[str, Any]:
        modules = {name: getattr(self, name).state_dict() for name in ("q", "target", "optimizer")}
        return {**modules, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("q", "target", "optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.updates = state["updates"]


def train(cfg: Config, run: Run) -> None:
    make_envs = partial(Envs, cfg.env)
    envs = make_envs(cfg.num_envs, seed=cfg.seed)
    agent, replay = Agent(), Replay(cfg.buffer_size, seed=cfg.seed, chunk=cfg.chunk)
    run.attach(agent=agent, replay=replay, envs=envs)
    obs = envs.obs
    for _ in run.steps(cfg.steps, cfg.num_envs):
        transition, obs = envs.step(agent.act(obs))
        replay.add(transition)
        run.episodes(envs.pop_episodes())
        if len(replay) >= 40:
            loss = agent.update(replay.sample(16))
            if run.due():
                run.log({"loss": loss, "updates": agent.updates})
        run.evaluate(agent.greedy, make_envs)
    run.finish({"parameters": sum(p.numel() for p in agent.q.parameters())})


def resume(path: Path) -> None:
    cfg = from_dict(Config, read_config(path)[1])
    with Run.open(path, cfg) as run:
        train(cfg, run)


def create(path: Path, **options: Any) -> None:
    cfg = Config(out=str(path))
    for name, value in options.items():
        setattr(cfg, name, type(getattr(cfg, name))(value))
    with Run.create("toy", cfg) as run:
        train(cfg, run)


def main(command: str, path: str, *rest: str) -> int:
    try:
        if command == "create":
            create(Path(path), **dict(option.split("=") for option in rest))
        else:
            resume(Path(path))
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code if isinstance(error, Interrupted) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
