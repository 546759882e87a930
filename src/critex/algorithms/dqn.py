"""DQN (Mnih et al., 2015) for discrete actions, with the critic as an explorer.

Read it from top to bottom: options, network, agent, loop. The lines that add CAE carry the mark `# CAE`, those
that CAE+ adds on top `# CAE+`; without them this is plain DQN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data import Batch, Replay, derive_seed
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.envs import Envs
from critex.errors import UserError, require_at_least, require_widths
from critex.explorers import ExplorationConfig
from critex.explorers import Explorer, Setting, make_explorer, reshaped, value_bonus  # CAE
from critex.networks import Adam, encoder, minimise, mlp
from critex.run import Run, RunConfig


@dataclass(kw_only=True)
class Config(ExplorationConfig, RunConfig):
    """Options of DQN; the defaults are CleanRL's."""

    env: str = "CartPole-v1"
    """Id of the environment."""
    steps: int = 500_000
    """Environment steps in all."""
    num_envs: int = 1
    """Environments stepped side by side."""

    learning_rate: float = 2.5e-4
    """Step size of Adam."""
    buffer_size: int = 10_000
    """Transitions in the replay buffer."""
    batch_size: int = 128
    """Transitions of one update."""
    gamma: float = 0.99
    """Discount γ."""
    learning_starts: int = 10_000
    """Environment steps before the first update."""
    train_every: int = 10
    """Environment steps between two updates."""
    target_every: int = 500
    """Environment steps between two copies of the network into the target network."""
    double_q: bool = False
    """Choose the next action with the online network, value it with the target network."""
    epsilon_start: float = 1.0
    """Share of random actions at the beginning."""
    epsilon_end: float = 0.05
    """Share of random actions at the end."""
    epsilon_fraction: float = 0.5
    """Part of the run over which the share falls linearly."""
    hidden: tuple[int, ...] = (120, 84)
    """Widths of the network's hidden layers; the last one is φ."""

    def __post_init__(self) -> None:
        require_at_least(
            self, steps=1, num_envs=1, buffer_size=1, batch_size=1, train_every=1, target_every=1,
            learning_starts=0, learning_rate=0, epsilon_fraction=0,
        )  # fmt: skip
        require_widths(self.hidden)


class QNetwork(nn.Module):
    """Q(s, ·) = θᵀφ(s): all actions at once."""

    def __init__(self, observation_space: gym.Space[Any], num_actions: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        encode = encoder(observation_space)
        self.body = nn.Sequential(encode, *mlp([encode.dim, *hidden]))  # φ
        self.head = nn.Linear(hidden[-1], num_actions)  # θ

    def embed(self, obs: Tree) -> Tensor:
        """φ(s), [..., hidden[-1]]."""
        phi: Tensor = self.body(obs)
        return phi

    def forward(self, obs: Tree) -> Tensor:
        """Q(s, ·), [..., A]."""
        q: Tensor = self.head(self.embed(obs))
        return q


class DQN:
    """The agent: acts ε-greedily, learns by Q-learning on replayed transitions."""

    explorer: Explorer  # CAE

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
    ) -> None:
        if not isinstance(action_space, gym.spaces.Discrete):
            raise UserError(f"dqn needs discrete actions, {cfg.env} has {action_space}")
        self.cfg, self.device = cfg, device
        self.num_actions = int(action_space.n)
        self.q, self.target = (
            QNetwork(observation_space, self.num_actions, cfg.hidden).to(device) for _ in range(2)
        )
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = Adam(self.q.parameters(), lr=cfg.learning_rate)
        self.generator = torch.Generator().manual_seed(derive_seed(cfg.seed, "exploration"))
        self.embedding = Embedding.of(self.q.embed, cfg.hidden[-1], action_space, takes_action=False)

    def epsilon(self, step: int) -> float:
        """ε falls linearly from start to end over the first `epsilon_fraction` of the run."""
        cfg = self.cfg
        done = min(step / max(cfg.epsilon_fraction * cfg.steps, 1), 1.0)
        return cfg.epsilon_start + done * (cfg.epsilon_end - cfg.epsilon_start)

    @torch.no_grad()
    def act(self, obs: Tree, step: int) -> Tensor:
        """ε-greedy actions, [N]."""
        obs = tree_map(lambda x: x.to(self.device), obs)
        q = self.q(obs)
        q = q + value_bonus(obs, self.explorer, self.cfg)  # CAE   Q + αβ, where the bonus goes into the value
        n = len(q)
        coin = torch.rand(n, generator=self.generator)
        random = torch.randint(self.num_actions, (n,), generator=self.generator)
        return torch.where(coin < self.epsilon(step), random, q.argmax(-1).cpu())

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """The greedy action without any bonus, for evaluation."""
        q: Tensor = self.q(tree_map(lambda x: x.to(self.device), obs))
        return q.argmax(-1)

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step on L_B = (Q(s,a) − r − γ max Q̄(s',·))²."""
        cfg = self.cfg
        reward = batch.reward
        reward = reshaped(batch, self.explorer, cfg)  # CAE   r̃ = r + αβ
        with torch.no_grad():
            next_q = self.target(batch.next_obs)
            chooser = self.q(batch.next_obs) if cfg.double_q else next_q
            bonus = value_bonus(batch.next_obs, self.explorer, cfg)  # CAE
            next_q, chooser = next_q + bonus, chooser + bonus  # CAE   Q + αβ
            next_value = next_q.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)
            target = reward + cfg.gamma * ~batch.terminated * next_value
        q = self.q(batch.obs).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
        loss = bellman = F.mse_loss(q, target)
        loss = loss + self.explorer.loss(batch)  # CAE+   L_B + L_f
        minimise(loss, self.optimizer)
        return {"loss": loss.detach(), "loss_bellman": bellman.detach(), "q": q.detach().mean()}

    def state_dict(self) -> dict[str, Any]:
        return {
            "q": self.q.state_dict(),
            "target": self.target.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.q.load_state_dict(state["q"])
        self.target.load_state_dict(state["target"])
        self.generator.set_state(state["generator"])


Agent = DQN


def train(cfg: Config, run: Run) -> None:
    """The whole training loop."""
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    agent = DQN(cfg, envs.observation_space, envs.action_space, run.device)
    replay = Replay(cfg.buffer_size, derive_seed(cfg.seed, "replay"))
    parts: dict[str, Any] = {"agent": agent, "optimizer": agent.optimizer, "replay": replay, "envs": envs}
    setting = Setting(agent.embedding, envs.observation_space, cfg.num_envs, cfg.seed)  # CAE
    parts["explorer"] = agent.explorer = explorer = make_explorer(cfg, setting)  # CAE
    agent.optimizer.add_param_group({"params": explorer.learned()})  # CAE+
    run.attach(**parts)

    obs = envs.obs
    for step in run.steps(cfg.steps, cfg.num_envs):
        transition, obs = envs.step(agent.act(obs, step))
        transition.bonus = explorer.bonus(transition.to(run.device))  # CAE   scaled β; then A ← A + φφᵀ
        replay.add(transition)
        run.episodes(envs.pop_episodes())
        run.visits(transition)

        after = step + cfg.num_envs
        if after >= cfg.learning_starts:
            for _ in range(after // cfg.train_every - step // cfg.train_every):
                losses: dict[str, Any] = agent.update(replay.sample(cfg.batch_size).to(run.device))
                explorer.refresh(replay)  # CAE   A under today's φ, where the options ask for it
                if run.due():
                    losses |= explorer.metrics()  # CAE
                    run.log(losses)
            if after // cfg.target_every > step // cfg.target_every:
                agent.target.load_state_dict(agent.q.state_dict())
        run.evaluate(agent.policy, partial(Envs, cfg.env))

    card: dict[str, Any] = {"parameters": sum(p.numel() for p in agent.q.parameters())}
    card |= explorer.card()  # CAE
    run.finish(card)
