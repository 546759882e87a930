"""TD3 (Fujimoto et al., 2018) for continuous actions, with the critic as an explorer.

Read it from top to bottom: options, actor, agent, loop. The lines that add CAE are marked `# CAE`, those that CAE+
adds on top `# CAE+`; without them this is plain TD3. The defaults are CleanRL's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
from critex.explorers import ExplorationConfig, clip_reward
from critex.explorers import Setting, batch_bonus, make_explorer  # CAE
from critex.networks import ActorCriticConfig, Adam, Critic, action_range, encoder, minimise, mlp, polyak_
from critex.networks.fast import deterministic_actor_loss, faster, twin_critic_loss
from critex.ranges import Count, Natural, NonNegative, Probability, Size
from critex.run import Run, RunConfig


@dataclass(kw_only=True)
class Config(ActorCriticConfig, ExplorationConfig, RunConfig):
    """Options of TD3."""

    env: str = "HalfCheetah-v4"
    """Id of the environment."""
    steps: Count = 1_000_000
    """Total environment steps."""
    num_envs: Count = 1
    """Environments stepped side by side."""

    buffer_size: Count = 1_000_000
    """Transitions in the replay buffer."""
    batch_size: Size = 256
    """Transitions per update."""
    gamma: Probability = 0.99
    """Discount γ."""
    n_step: Size = 1
    """Steps of reward in the target before it bootstraps."""
    tau: Probability = 0.005
    """Target update rate τ in θ̄ ← (1 − τ)θ̄ + τθ."""
    learning_starts: Natural = 25_000
    """Environment steps with random actions before the first update."""
    updates_per_step: UpdateRatio = 1.0
    """Updates per environment step, however many environments there are."""
    learning_rate: NonNegative = 3e-4
    """Learning rate of Adam, for actor and critics."""
    exploration_noise: NonNegative = 0.1
    """Standard deviation of the exploration noise, for actions scaled to [−1, 1]."""
    target_noise: NonNegative = 0.2
    """Standard deviation of the noise on the target policy's actions (target smoothing), in the same unit."""
    target_noise_clip: NonNegative = 0.5
    """Bound on that noise."""
    policy_delay: Count = 2
    """Updates of the critics per update of the actor and the target networks."""
    fast: bool = True
    """Use hand-written gradients if the networks are plain Linear+ReLU: the same numbers, faster."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_buffer(self)


class Actor(nn.Module):
    """μ(s): one action, squashed by tanh into its range."""

    scale: Tensor
    centre: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, cfg: Config, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        super().__init__()
        scale, centre = action_range(action_space)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("centre", centre, persistent=False)
        self.register_buffer("low", centre - scale, persistent=False)
        self.register_buffer("high", centre + scale, persistent=False)
        self.encode = encoder(observation_space)
        self.body = mlp([self.encode.dim, *cfg.actor_widths], cfg.activation, cfg.layer_norm)
        self.head = nn.Linear(cfg.actor_widths[-1], len(scale))

    def forward(self, obs: Tree) -> Tensor:
        """μ(s), [..., a]."""
        return self.rescale(self.head(self.body(self.encode(obs))).tanh())

    def rescale(self, squashed: Tensor) -> Tensor:
        """Map [−1, 1] to the range of the actions."""
        return torch.addcmul(self.centre, squashed, self.scale)

    def clip(self, action: Tensor) -> Tensor:
        """Actions clipped to their range."""
        return action.clamp(self.low, self.high)


class TD3:
    """The agent: acts with noise, learns from replay with twin critics, delayed actor and target updates.

    `critic` makes custom critics: modules with `forward(obs, action)` → Q [B] and `embed(obs, action)` → φ [B, d].
    """

    _parts = ("actor", "actor_target", "q1", "q2", "target1", "target2", "actor_optimizer")

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
        critic: MakeCritic | None = None,
    ) -> None:
        self.cfg, self.device = cfg, device
        self.actor, self.actor_target = (
            Actor(cfg, observation_space, action_space).to(device) for _ in range(2)
        )
        shape = (cfg.critic_widths, cfg.activation, cfg.layer_norm)
        make_critic: Any = critic or partial(Critic, observation_space, len(self.actor.scale), *shape)
        self.q1, self.q2, self.target1, self.target2 = (make_critic().to(device) for _ in range(4))
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.target1.load_state_dict(self.q1.state_dict())
        self.target2.load_state_dict(self.q2.state_dict())
        self._online: list[Tensor] = [p for net in (self.actor, self.q1, self.q2) for p in net.parameters()]
        targets = (self.actor_target, self.target1, self.target2)
        self._targets: list[Tensor] = [p for net in targets for p in net.parameters()]
        self.optimizer = Adam([*self.q1.parameters(), *self.q2.parameters()], lr=cfg.learning_rate)
        self.actor_optimizer = Adam(self.actor.parameters(), lr=cfg.learning_rate)
        # Of the actor's last update, which is rarer than the critics'.
        self.actor_losses: dict[str, Tensor] = {}
        width = embedding_width(self.q1, observation_space, action_space, takes_action=True)
        self.embedding = Embedding.of(self.q1.embed, width, action_space, takes_action=True)
        setting = Setting(self.embedding, observation_space, cfg.num_envs, cfg.seed)  # CAE
        self.explorer = make_explorer(cfg, setting)  # CAE
        self.optimizer.add_param_group({"params": self.explorer.learned()})  # CAE+

    def see(self, obs: Tree) -> Tree:
        """Observations on the device of the networks."""
        return tree_map(lambda x: x.to(self.device), obs)

    @torch.no_grad()
    def act(self, obs: Tree, step: int) -> Tensor:
        """Uniformly random actions before learning starts, then μ(s) with noise, [N, a]."""
        actor, action = self.actor, self.policy(obs)
        if step < self.cfg.learning_starts:
            return actor.rescale(2 * torch.rand_like(action) - 1)
        noise = torch.randn_like(action)
        return actor.clip(torch.addcmul(action, noise, actor.scale, value=self.cfg.exploration_noise))

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """μ(s), for evaluation."""
        action: Tensor = self.actor(self.see(obs))
        return action

    @torch.no_grad()
    def target(self, reward: Tensor, next_obs: Tree, discount: Tensor) -> Tensor:
        """y = r + discount·min Q̄(s',a'), a' = μ̄(s') with clipped noise, [B]."""
        cfg, action = self.cfg, self.actor_target(next_obs)
        noise = torch.randn_like(action).mul_(cfg.target_noise)
        noise.clamp_(-cfg.target_noise_clip, cfg.target_noise_clip)
        action = self.actor.clip(torch.addcmul(action, noise, self.actor.scale))
        q = torch.minimum(self.target1(next_obs, action), self.target2(next_obs, action))
        return reward + discount * q

    @faster(twin_critic_loss, q1=Critic, q2=Critic)
    def critic_loss(self, obs: Tree, action: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """L_B = mean (Q₁ − y)² + mean (Q₂ − y)², and Q₁ [B]."""
        q1, q2 = self.q1(obs, action), self.q2(obs, action)
        return F.mse_loss(q1, y) + F.mse_loss(q2, y), q1.detach()

    @faster(deterministic_actor_loss, actor=Actor, q1=Critic)
    def actor_loss(self, obs: Tree) -> Tensor:
        """Mean of −Q₁(s, μ(s))."""
        q: Tensor = self.q1(obs, self.actor(obs))
        return -q.mean()

    def update(self, batch: Batch, step: int) -> dict[str, Any]:
        """One gradient step of the critics; one of the actor and one target update when due.

        `batch` is [B], or [n, B] for n-step returns.
        """
        cfg = self.cfg
        reward = batch.reward
        bonus = batch_bonus(batch, self.explorer, cfg)  # CAE
        reward = reward + self.explorer.alpha.value * bonus  # CAE   r̃ = r + αβ
        reward = clip_reward(reward, cfg)
        batch, reward, next_obs, discount = n_step_return(batch, reward, cfg.gamma)
        y = self.target(reward, next_obs, discount)
        loss, q = self.critic_loss(batch.obs, batch.action, y)
        losses = {"loss_bellman": loss.detach(), "q": q.mean()}
        loss = loss + self.explorer.loss(batch)  # CAE+   L_B + L_f
        minimise(loss, self.optimizer)
        if step % cfg.policy_delay == 0:
            actor_loss = self.actor_loss(batch.obs)
            minimise(actor_loss, self.actor_optimizer)
            polyak_(self._targets, self._online, cfg.tau)
            self.actor_losses = {"loss_actor": actor_loss.detach()}
        return losses | {"loss": loss.detach()} | self.actor_losses

    def state_dict(self) -> dict[str, Any]:
        state = {name: getattr(self, name).state_dict() for name in self._parts}
        return state | {"losses": self.actor_losses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._parts:
            getattr(self, name).load_state_dict(state[name])
        self.actor_losses = state["losses"]


Agent = TD3


def train(cfg: Config, run: Run, critic: MakeCritic | None = None) -> None:
    """The whole training loop."""

    def due(step: int) -> int:
        return updates_due(max(step, cfg.learning_starts + 1), cfg.updates_per_step)

    total = math.ceil(cfg.steps / cfg.num_envs) * cfg.num_envs
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    agent = TD3(cfg, envs.observation_space, envs.action_space, run.device, critic)
    require_updates(cfg, due(total) - due(0))
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

        losses: dict[str, Any] = {}
        for update in range(due(step), due(step + cfg.num_envs)):
            batch = replay.sample_windows(cfg.batch_size, cfg.n_step, cfg.num_envs)
            losses = agent.update(batch.to(run.device), update)
        explorer.refresh(replay)  # CAE   rebuild A under the current φ, if rebuild_every is set
        if losses and run.due():
            losses |= explorer.metrics()  # CAE
            run.log(losses)
        run.evaluate(agent.policy, partial(Envs, cfg.env))

    card: dict[str, Any] = {"parameters": sum(p.numel() for p in agent._online)}
    card |= explorer.card()  # CAE
    run.finish(card)
