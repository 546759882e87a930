"""Soft actor-critic (Haarnoja et al., 2018) for continuous actions, with the critic as an explorer.

Read it from top to bottom: options, actor, agent, loop. The lines that add CAE are marked `# CAE`, those that CAE+
adds on top `# CAE+`; without them this is plain SAC. The defaults are CleanRL's.
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
from critex.networks.fast import faster, soft_actor_loss, temperature_loss, twin_critic_loss
from critex.ranges import Count, Natural, NonNegative, Probability, Size
from critex.run import Run, RunConfig


@dataclass(kw_only=True)
class Config(ActorCriticConfig, ExplorationConfig, RunConfig):
    """Options of SAC."""

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
    learning_starts: Natural = 5_000
    """Environment steps with random actions before the first update."""
    updates_per_step: UpdateRatio = 1.0
    """Updates per environment step, however many environments there are."""
    actor_learning_rate: NonNegative = 3e-4
    """Learning rate of Adam for the actor."""
    critic_learning_rate: NonNegative = 1e-3
    """Learning rate of Adam for the two critics and the temperature."""
    policy_delay: Count = 2
    """Every `policy_delay` updates the actor is updated, `policy_delay` times in a row."""
    entropy_coef: NonNegative | None = None
    """Temperature, the weight of the policy's entropy (none: learned, with target entropy −dim(A))."""
    fast: bool = True
    """Use hand-written gradients if the networks are plain Linear+ReLU: the same numbers, faster."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_buffer(self)


class Actor(nn.Module):
    """π(·|s): a Gaussian squashed by tanh into the range of the actions.

    a = scale·t + centre, t = tanh(u), u = mean + σz, z ~ N(0, 1), and by the change of variables
    log π(a|s) = −Σ (½z² + log σ + ½log 2π + log(da/du + 1e-6)), da/du = scale·(1 − t²).
    """

    log_std_centre, log_std_scale = -1.5, 3.5  # log σ lies in [−5, 2]
    scale: Tensor
    centre: Tensor

    def __init__(self, cfg: Config, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        super().__init__()
        scale, centre = action_range(action_space)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("centre", centre, persistent=False)
        self.encode = encoder(observation_space)
        self.body = mlp([self.encode.dim, *cfg.actor_widths], cfg.activation, cfg.layer_norm)
        self.head = nn.Linear(cfg.actor_widths[-1], 2 * len(scale))  # mean and log σ

    def gaussian(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Mean and log σ before squashing, [..., a] each."""
        return self.split(self.head(self.body(self.encode(obs))))

    def split(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log σ from the output of the head, [..., 2a]."""
        mean, raw = out.chunk(2, dim=-1)
        return mean, self.log_std_centre + self.log_std_scale * raw.tanh()

    def squash(self, u: Tensor) -> Tensor:
        """Squash u [..., a] into the range of the actions."""
        return u.tanh() * self.scale + self.centre

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """A sample [..., a], reparameterised, and log π(a|s) [...]."""
        return self.sample(*self.gaussian(obs))

    def sample(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        """The same from the Gaussian before squashing."""
        z = torch.randn_like(mean)
        t = (mean + log_std.exp() * z).tanh()
        slope = torch.addcmul(self.scale, self.scale, t.square(), value=-1)  # da/du
        terms = log_std + 0.5 * z.square() + (slope + 1e-6).log()
        log_prob = -(terms.sum(-1) + 0.5 * math.log(2 * math.pi) * len(self.scale))
        return torch.addcmul(self.centre, t, self.scale), log_prob


class SAC:
    """The agent: acts by sampling, learns from replay with twin critics and a learned temperature.

    `critic` makes custom critics: modules with `forward(obs, action)` → Q [B] and `embed(obs, action)` → φ [B, d].
    """

    _parts = ("actor", "q1", "q2", "target1", "target2", "actor_optimizer", "entropy_optimizer")

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
        critic: MakeCritic | None = None,
    ) -> None:
        self.cfg, self.device = cfg, device
        self.actor = Actor(cfg, observation_space, action_space).to(device)
        action_dim = len(self.actor.scale)
        shape = (cfg.critic_widths, cfg.activation, cfg.layer_norm)
        make_critic: Any = critic or partial(Critic, observation_space, action_dim, *shape)
        self.q1, self.q2, self.target1, self.target2 = (make_critic().to(device) for _ in range(4))
        self.target1.load_state_dict(self.q1.state_dict())
        self.target2.load_state_dict(self.q2.state_dict())
        self._critics: list[Tensor] = [*self.q1.parameters(), *self.q2.parameters()]
        self._targets: list[Tensor] = [*self.target1.parameters(), *self.target2.parameters()]
        self.target_entropy = -float(action_dim)
        initial = 1.0 if cfg.entropy_coef is None else cfg.entropy_coef
        self.log_entropy_coef = torch.tensor(initial, device=device).log()
        self.log_entropy_coef.requires_grad_(cfg.entropy_coef is None)
        self.optimizer = Adam(self._critics, lr=cfg.critic_learning_rate)
        self.actor_optimizer = Adam(self.actor.parameters(), lr=cfg.actor_learning_rate)
        self.entropy_optimizer = Adam([self.log_entropy_coef], lr=cfg.critic_learning_rate)
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
        """Uniformly random actions before learning starts, then samples of the policy, [N, a]."""
        mean, log_std = self.actor.gaussian(self.see(obs))
        if step < self.cfg.learning_starts:
            return (2 * torch.rand_like(mean) - 1) * self.actor.scale + self.actor.centre
        return self.actor.squash(torch.randn_like(mean).mul_(log_std.exp()).add_(mean))

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """The squashed mean, for evaluation."""
        return self.actor.squash(self.actor.gaussian(self.see(obs))[0])

    @torch.no_grad()
    def target(self, reward: Tensor, next_obs: Tree, discount: Tensor) -> Tensor:
        """y = r + discount·(min Q̄(s',a') − entropy_coef·log π(a'|s')), a' ~ π(s'), [B]."""
        action, log_prob = self.actor(next_obs)
        q = torch.minimum(self.target1(next_obs, action), self.target2(next_obs, action))
        value: Tensor = q - self.log_entropy_coef.exp() * log_prob
        return reward + discount * value

    @faster(twin_critic_loss, q1=Critic, q2=Critic)
    def critic_loss(self, obs: Tree, action: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """L_B = mean (Q₁ − y)² + mean (Q₂ − y)², and Q₁ [B]."""
        q1, q2 = self.q1(obs, action), self.q2(obs, action)
        return F.mse_loss(q1, y) + F.mse_loss(q2, y), q1.detach()

    @faster(soft_actor_loss, actor=Actor, q1=Critic, q2=Critic)
    def actor_loss(self, obs: Tree) -> Tensor:
        """Mean of entropy_coef·log π(a|s) − min Q(s,a), a ~ π(s)."""
        action, log_prob = self.actor(obs)
        q = torch.minimum(self.q1(obs, action), self.q2(obs, action))
        loss: Tensor = self.log_entropy_coef.exp().detach() * log_prob - q
        return loss.mean()

    @faster(temperature_loss, actor=Actor)
    def temperature_loss(self, obs: Tree) -> Tensor:
        """−entropy_coef·(mean log π(a|s) + H̄), a ~ π(s), with the target entropy −H̄."""
        with torch.no_grad():
            surplus = self.actor(obs)[1].mean() + self.target_entropy
        loss: Tensor = -self.log_entropy_coef.exp() * surplus
        return loss

    def update(self, batch: Batch, step: int) -> dict[str, Any]:
        """One gradient step of the critics, of actor and temperature when due, and one target update.

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
            for _ in range(cfg.policy_delay):
                self.update_actor(batch.obs)
        polyak_(self._targets, self._critics, cfg.tau)
        return losses | {"loss": loss.detach()} | self.actor_losses

    def update_actor(self, obs: Tree) -> None:
        """One step of the actor, then one of the temperature, with fresh actions."""
        loss = self.actor_loss(obs)
        minimise(loss, self.actor_optimizer)
        self.actor_losses = {
            "loss_actor": loss.detach(),
            "entropy_coef": self.log_entropy_coef.detach().exp(),
        }
        if self.cfg.entropy_coef is None:
            minimise(self.temperature_loss(obs), self.entropy_optimizer)

    def state_dict(self) -> dict[str, Any]:
        state = {name: getattr(self, name).state_dict() for name in self._parts}
        return state | {"log_entropy_coef": self.log_entropy_coef.detach(), "actor_losses": self.actor_losses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._parts:
            getattr(self, name).load_state_dict(state[name])
        self.log_entropy_coef.data.copy_(state["log_entropy_coef"])
        self.actor_losses = state["actor_losses"]


Agent = SAC


def train(cfg: Config, run: Run, critic: MakeCritic | None = None) -> None:
    """The whole training loop."""

    def due(step: int) -> int:
        return updates_due(max(step, cfg.learning_starts + 1), cfg.updates_per_step)

    total = math.ceil(cfg.steps / cfg.num_envs) * cfg.num_envs
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    agent = SAC(cfg, envs.observation_space, envs.action_space, run.device, critic)
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

    networks = (agent.actor, agent.q1, agent.q2)
    card: dict[str, Any] = {"parameters": sum(p.numel() for net in networks for p in net.parameters())}
    card |= explorer.card()  # CAE
    run.finish(card)
