"""DQN (Mnih et al., 2015) for discrete actions, with the critic as an explorer.

Read it from top to bottom: options, network, agent, loop. The lines that add CAE are marked `# CAE`, those
that CAE+ adds on top `# CAE+`; without them this is plain DQN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.algorithms.agent import (
    MakeCritic,
    UpdateRatio,
    embedding_width,
    require_buffer,
    require_updates,
    updates_due,
)
from critex.data import Batch, Replay, derive_seed, n_step_return
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.envs import Envs
from critex.errors import UserError
from critex.explorers import ExplorationConfig, clip_reward
from critex.explorers import Setting, batch_bonus, make_explorer, value_bonus  # CAE
from critex.networks import Adam, NetworkConfig, encoder, eval_mode, minimise, mlp
from critex.networks.langevin import LangevinAdam
from critex.ranges import Count, Natural, NonNegative, Probability, Size
from critex.run import Run, RunConfig


@dataclass(kw_only=True)
class Config(NetworkConfig, ExplorationConfig, RunConfig):
    """Options of DQN; the defaults are CleanRL's."""

    env: str = "CartPole-v1"
    """Id of the environment."""
    steps: Count = 500_000
    """Total environment steps."""
    num_envs: Count = 1
    """Environments stepped side by side."""

    learning_rate: NonNegative = 2.5e-4
    """Learning rate of Adam."""
    langevin: NonNegative | None = None
    """Noise scale of Langevin steps, such as 1e-7: train with the optimiser of Adam LMCDQN instead of Adam (none:
    Adam)."""
    buffer_size: Count = 10_000
    """Transitions in the replay buffer."""
    batch_size: Size = 128
    """Transitions per update."""
    gamma: Probability = 0.99
    """Discount γ."""
    n_step: Size = 1
    """Steps of reward in the target before it bootstraps."""
    learning_starts: Natural = 10_000
    """Environment steps before the first update."""
    train_every: Count = 10
    """Environment steps between two updates."""
    updates_per_step: UpdateRatio | None = None
    """Updates per environment step, instead of `train_every` (none: 1/train_every)."""
    target_every: Count = 500
    """Environment steps between two copies of the network into the target network."""
    double_q: bool = False
    """Double DQN: choose the next action with the online network, evaluate it with the target network."""
    epsilon_start: Probability = 1.0
    """ε at the beginning: the share of random actions."""
    epsilon_end: Probability = 0.05
    """ε at the end."""
    epsilon_fraction: Probability = 0.5
    """Fraction of the run over which ε decays linearly."""
    hidden: tuple[Count, ...] = (120, 84)
    """Widths of the network's hidden layers; the last one is φ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_buffer(self)

    @property
    def update_ratio(self) -> float | Fraction:
        """Updates per environment step."""
        return Fraction(1, self.train_every) if self.updates_per_step is None else self.updates_per_step


class QNetwork(nn.Module):
    """Q(s, ·) = θᵀφ(s): all actions at once."""

    def __init__(self, cfg: Config, observation_space: gym.Space[Any], num_actions: int) -> None:
        super().__init__()
        self.encode = encoder(observation_space)
        self.body = mlp([self.encode.dim, *cfg.hidden], cfg.activation, cfg.layer_norm)  # φ
        self.head = nn.Linear(cfg.hidden[-1], num_actions)  # θ

    def embed(self, obs: Tree) -> Tensor:
        """φ(s), [..., hidden[-1]]."""
        phi: Tensor = self.body(self.encode(obs))
        return phi

    def forward(self, obs: Tree) -> Tensor:
        """Q(s, ·), [..., A]."""
        q: Tensor = self.head(self.embed(obs))
        return q


class DQN:
    """The agent: acts ε-greedily, learns by Q-learning on replayed transitions.

    `critic` makes custom networks: modules with `forward(obs)` → Q(s, ·) [B, A] and `embed(obs)` → φ [B, d].
    """

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
        critic: MakeCritic | None = None,
    ) -> None:
        if not isinstance(action_space, gym.spaces.Discrete):
            raise UserError(
                f"dqn needs discrete actions, {cfg.env} has {action_space}; use ppo, sac, td3 or dsac"
            )
        self.cfg, self.device = cfg, device
        self.num_actions = int(action_space.n)
        make_critic: Any = critic or partial(QNetwork, cfg, observation_space, self.num_actions)
        self.q, self.target = (make_critic().to(device) for _ in range(2))
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer: Adam | LangevinAdam = Adam(self.q.parameters(), lr=cfg.learning_rate)
        if cfg.langevin is not None:
            seed = derive_seed(cfg.seed, "langevin")
            self.optimizer = LangevinAdam(self.q.parameters(), cfg.learning_rate, cfg.langevin, seed=seed)
        self.generator = torch.Generator().manual_seed(derive_seed(cfg.seed, "exploration"))
        width = embedding_width(self.q, observation_space, action_space, takes_action=False)
        self.embedding = Embedding.of(self.q.embed, width, action_space, takes_action=False)
        setting = Setting(self.embedding, observation_space, cfg.num_envs, cfg.seed)  # CAE
        self.explorer = make_explorer(cfg, setting)  # CAE
        self.optimizer.add_param_group({"params": self.explorer.learned()})  # CAE+

    def see(self, obs: Tree) -> Tree:
        """Observations on the device of the networks."""
        return tree_map(lambda x: x.to(self.device), obs)

    def epsilon(self, step: int) -> float:
        """ε falls linearly from start to end over the first `epsilon_fraction` of the run."""
        cfg = self.cfg
        progress = min(step / max(cfg.epsilon_fraction * cfg.steps, 1), 1.0)
        return cfg.epsilon_start + progress * (cfg.epsilon_end - cfg.epsilon_start)

    @torch.no_grad()
    def act(self, obs: Tree, step: int) -> Tensor:
        """ε-greedy actions, [N]."""
        obs = self.see(obs)
        q = self.q(obs)
        bonus = value_bonus(obs, self.explorer, self.cfg)  # CAE
        q = q + self.explorer.alpha.value * bonus  # CAE   Q + αβ, if bonus_in=value
        n = len(q)
        coin = torch.rand(n, generator=self.generator)
        random = torch.randint(self.num_actions, (n,), generator=self.generator)
        return torch.where(coin < self.epsilon(step), random, q.argmax(-1).cpu())

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """The greedy action without any bonus, for evaluation."""
        with eval_mode(self.q.modules()):  # a critic of your own may have dropout or batch norms
            q: Tensor = self.q(self.see(obs))
        return q.argmax(-1)

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step on L_B = (Q(s,a) − r − γ max Q̄(s',·))²; `batch` is [B], or [n, B] for n-step returns."""
        cfg = self.cfg
        reward = batch.reward
        bonus = batch_bonus(batch, self.explorer, cfg)  # CAE
        reward = reward + self.explorer.alpha.value * bonus  # CAE   r̃ = r + αβ
        reward = clip_reward(reward, cfg)
        batch, reward, next_obs, discount = n_step_return(batch, reward, cfg.gamma)
        with torch.no_grad():
            next_q = self.target(next_obs)
            chooser = self.q(next_obs) if cfg.double_q else next_q
            bonus = self.explorer.alpha.value * value_bonus(next_obs, self.explorer, cfg, target=True)  # CAE
            next_q, chooser = next_q + bonus, chooser + bonus  # CAE   Q + αβ
            next_value = next_q.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)
            target = reward + discount * next_value
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


def train(cfg: Config, run: Run, critic: MakeCritic | None = None) -> None:
    """The whole training loop."""

    def due(step: int) -> int:
        return updates_due(step, cfg.update_ratio)

    total = math.ceil(cfg.steps / cfg.num_envs) * cfg.num_envs
    # The first step with an update ends at `learning_starts` or later.
    first = (math.ceil(cfg.learning_starts / cfg.num_envs) - 1) * cfg.num_envs
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    agent = DQN(cfg, envs.observation_space, envs.action_space, run.device, critic)
    require_updates(cfg, due(total) - due(max(first, 0)))
    replay = Replay(cfg.buffer_size, derive_seed(cfg.seed, "replay"))
    parts: dict[str, Any] = {"agent": agent, "optimizer": agent.optimizer, "replay": replay, "envs": envs}
    parts["explorer"] = explorer = agent.explorer  # CAE
    run.attach(**parts)

    obs = envs.obs
    for step in run.steps(cfg.steps, cfg.num_envs):
        transition, obs = envs.step(agent.act(obs, step))
        transition.bonus = explorer.bonus(transition.to(run.device))  # CAE   scaled β; then A ← A + φφᵀ
        explorer.alpha.observe(transition.reward, transition.bonus, transition.episode_start)  # CAE   auto α
        replay.add(transition)
        run.episodes(envs.pop_episodes())
        run.visits(transition)

        after = step + cfg.num_envs
        if after >= cfg.learning_starts:
            for _ in range(due(after) - due(step)):
                batch = replay.sample_windows(cfg.batch_size, cfg.n_step, cfg.num_envs)
                losses: dict[str, Any] = agent.update(batch.to(run.device))
                explorer.refresh(replay)  # CAE   rebuild A under the current φ, if rebuild_every is set
                if run.due():
                    losses |= explorer.metrics()  # CAE
                    run.log(losses)
            if after // cfg.target_every > step // cfg.target_every:
                agent.target.load_state_dict(agent.q.state_dict())
        run.evaluate(agent.policy, partial(Envs, cfg.env))

    card: dict[str, Any] = {"parameters": sum(p.numel() for p in agent.q.parameters())}
    card |= explorer.card()  # CAE
    run.finish(card)
