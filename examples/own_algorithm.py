"""A custom algorithm: expected SARSA on each step as it comes, without a replay buffer.

target = r + αβ + γ Σ_a π(a|s') Q(s', a),    π ε-greedy

Installed with the entry point `sarsa = "own_algorithm"` in the group `critex.algorithms`, it is an algorithm like any
other:  critex train sarsa --env CartPole-v1 --explorer cae;  critex resume, eval, report and suite know it as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data import Transition, derive_seed
from critex.data.tree import Tree
from critex.embedding import Embedding
from critex.envs import Envs
from critex.errors import UserError
from critex.explorers import ExplorationConfig, Setting, make_explorer
from critex.networks import encoder, mlp
from critex.run import Run, RunConfig


@dataclass(kw_only=True)
class Config(ExplorationConfig, RunConfig):
    """Options: each is a flag of `critex train sarsa`, and its docstring is the help text."""

    env: str = "CartPole-v1"
    """Id of the environment."""
    steps: int = 100_000
    """Total environment steps."""
    num_envs: int = 8
    """Environments stepped side by side."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    gamma: float = 0.99
    """Discount γ."""
    epsilon: float = 0.1
    """Probability of a random action."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers; the last one is φ."""

    def __post_init__(self) -> None:
        if self.bonus_in == "value":
            raise UserError("sarsa takes bonus_in=reward only")


class Agent:
    """Q(s, ·) = θᵀφ(s), and the explorer."""

    def __init__(self, cfg: Config, observation_space: Any, action_space: Any, device: torch.device) -> None:
        if not isinstance(action_space, gym.spaces.Discrete):
            raise UserError(f"sarsa needs discrete actions, {cfg.env} has {action_space}")
        self.cfg, self.device, self.num_actions = cfg, device, int(action_space.n)
        encode = encoder(observation_space)
        self.body = nn.Sequential(encode, *mlp([encode.dim, *cfg.hidden])).to(device)  # φ
        self.head = nn.Linear(cfg.hidden[-1], self.num_actions).to(device)  # θ
        self.embedding = Embedding.of(self.body.forward, cfg.hidden[-1], action_space, takes_action=False)
        self.explorer = make_explorer(cfg, Setting(self.embedding, observation_space, cfg.num_envs, cfg.seed))
        weights = [*self.body.parameters(), *self.head.parameters(), *self.explorer.learned()]
        self.optimizer = torch.optim.Adam(weights, lr=cfg.learning_rate)
        self.generator = torch.Generator().manual_seed(derive_seed(cfg.seed, "exploration"))

    def q(self, obs: Tree) -> Tensor:
        """Q(s, ·), [N, A]."""
        values: Tensor = self.head(self.body(obs))
        return values

    @torch.no_grad()
    def act(self, obs: Tree) -> Tensor:
        """ε-greedy actions, [N]."""
        greedy = self.policy(obs)
        random = torch.randint(self.num_actions, greedy.shape, generator=self.generator)
        return torch.where(
            torch.rand(greedy.shape, generator=self.generator) < self.cfg.epsilon, random, greedy
        )

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """The greedy action, for evaluation."""
        return self.q(obs).argmax(-1)

    def update(self, step: Transition) -> dict[str, Tensor]:
        """One gradient step on the squared error of one vector step."""
        cfg = self.cfg
        reward = step.reward + self.explorer.alpha.value * step.bonus.to(step.reward)
        with torch.no_grad():
            next_q = self.q(step.next_obs)
            value = (1 - cfg.epsilon) * next_q.max(-1).values + cfg.epsilon * next_q.mean(-1)
            target = reward + cfg.gamma * ~step.terminated * value
        q = self.q(step.obs).gather(-1, step.action.unsqueeze(-1)).squeeze(-1)
        loss = F.mse_loss(q, target) + self.explorer.loss(step)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}

    def state_dict(self) -> dict[str, Any]:
        networks = {"body": self.body.state_dict(), "head": self.head.state_dict()}
        return networks | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.body.load_state_dict(state["body"])
        self.head.load_state_dict(state["head"])
        self.generator.set_state(state["generator"])


def train(cfg: Config, run: Run) -> None:
    """The training loop. Everything passed to `attach` is saved and restored, so a killed run continues exactly."""
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed)
    agent = Agent(cfg, envs.observation_space, envs.action_space, run.device)
    run.attach(agent=agent, optimizer=agent.optimizer, explorer=agent.explorer, envs=envs)
    obs = envs.obs
    for _ in run.steps(cfg.steps, cfg.num_envs):
        step, obs = envs.step(agent.act(obs))
        step.bonus = agent.explorer.bonus(step)
        agent.explorer.alpha.observe(step.reward, step.bonus, step.episode_start)
        losses: dict[str, Any] = agent.update(step)
        run.episodes(envs.pop_episodes())
        if run.due():
            run.log(losses | agent.explorer.metrics())
        run.evaluate(agent.policy, partial(Envs, cfg.env))
    run.finish(agent.explorer.card())
