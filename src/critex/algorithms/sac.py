"""Soft actor-critic (Haarnoja et al., 2018) for continuous actions, with the critic as an explorer.

Read it from top to bottom: options, actor, agent, loop. The lines that add CAE carry the mark `# CAE`, those
that CAE+ adds on top `# CAE+`; without them this is plain SAC. The defaults are CleanRL's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from critex.data import Batch, Replay, derive_seed
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.envs import Envs
from critex.errors import require_at_least, require_widths
from critex.explorers import ExplorationConfig
from critex.explorers import Explorer, Setting, make_explorer, reshaped  # CAE
from critex.networks import Adam, Critic, Flatten, action_range, mlp, polyak_, relu_layers
from critex.networks import parameter_gradients, plus, regression, smallest, trace
from critex.run import Run, RunConfig

LOG_STD_MIDDLE, LOG_STD_HALF = -1.5, 3.5  # log σ of the policy lies in [−5, 2]


@dataclass(kw_only=True)
class Config(ExplorationConfig, RunConfig):
    """Options of SAC."""

    env: str = "HalfCheetah-v4"
    """Id of the environment."""
    steps: int = 1_000_000
    """Environment steps in all."""
    num_envs: int = 1
    """Environments stepped side by side; there is one update per environment step, however many."""

    buffer_size: int = 1_000_000
    """Transitions in the replay buffer."""
    batch_size: int = 256
    """Transitions of one update."""
    gamma: float = 0.99
    """Discount γ."""
    tau: float = 0.005
    """How far the target networks move at each update."""
    learning_starts: int = 5_000
    """Environment steps with random actions before the first update."""
    actor_learning_rate: float = 3e-4
    """Step size of Adam for the actor."""
    critic_learning_rate: float = 1e-3
    """Step size of Adam for the two critics, and for the temperature."""
    policy_delay: int = 2
    """Every so many environment steps the actor is updated, then as many times in a row."""
    entropy_coef: float | None = None
    """Temperature, the weight of the policy's entropy (none: learned, with target entropy −dim(A))."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics; the critic's last one is φ."""
    compile: bool = False
    """Compile the gradients with torch.compile (needs a C++ compiler; the first updates take a minute)."""

    def __post_init__(self) -> None:
        require_at_least(
            self, steps=1, num_envs=1, buffer_size=1, batch_size=1, policy_delay=1, learning_starts=0
        )
        require_at_least(self, actor_learning_rate=0, critic_learning_rate=0)
        if self.entropy_coef is not None:
            require_at_least(self, entropy_coef=0)
        require_widths(self.hidden)


class Actor(nn.Module):
    """π(·|s): a Gaussian squashed by tanh into the range of the actions."""

    scale: Tensor
    centre: Tensor

    def __init__(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], hidden: tuple[int, ...]
    ) -> None:
        super().__init__()
        scale, centre = action_range(action_space)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("centre", centre, persistent=False)
        self.flatten = Flatten(observation_space)
        self.body = mlp([self.flatten.dim, *hidden])
        self.head = nn.Linear(hidden[-1], 2 * len(scale))  # mean and log σ
        self.layers = relu_layers(self.body, self.head)  # for gradients by hand

    def gaussian(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Mean and log σ before the squashing, [..., a] each."""
        mean, raw = self.head(self.body(self.flatten(obs))).chunk(2, dim=-1)
        return mean, LOG_STD_MIDDLE + LOG_STD_HALF * raw.tanh()

    def squash(self, u: Tensor) -> Tensor:
        """[..., a] into the range of the actions."""
        return u.tanh() * self.scale + self.centre

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """A sample [..., a], and its log-density log π(a|s) [...]."""
        return self.sample(self.head(self.body(self.flatten(obs))))[:2]

    @torch.no_grad()
    def sample(self, out: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], Tensor]]:
        """The same from what the head returns, [..., 2a], and the way back: (∂L/∂a, ∂L/∂log π) → ∂L/∂out.

        a = scale·t + centre, t = tanh(u), u = mean + σz, z ~ N(0, 1), and by the change of variables
        log π = −Σ (½z² + log σ + ½log 2π + log w), w = da/du + 1e-6.
        """
        mean, raw = out.chunk(2, dim=-1)
        raw = raw.tanh()
        log_std = LOG_STD_MIDDLE + LOG_STD_HALF * raw
        z = torch.randn_like(mean)
        spread = log_std.exp().mul_(z)  # σz
        t = (mean + spread).tanh_()
        slope = torch.addcmul(self.scale, self.scale, t.square(), value=-1)  # da/du = scale·(1 − t²)
        width = slope + 1e-6
        terms = log_std.add_(z.square_(), alpha=0.5).add_(width.log())
        log_prob = -(terms.sum(-1) + 0.5 * math.log(2 * math.pi) * len(self.scale))

        def back(to_action: Tensor, to_log_prob: Tensor) -> Tensor:
            to_log_prob = to_log_prob.unsqueeze(-1)
            to_u = slope * (to_action + to_log_prob * 2 * t / width)
            to_log_std = to_u * spread - to_log_prob
            return torch.cat([to_u, to_log_std * LOG_STD_HALF * (1 - raw.square())], dim=-1)

        return torch.addcmul(self.centre, t, self.scale), log_prob, back


class SAC:
    """The agent: acts by sampling, learns from replay with twin critics and a learned temperature."""

    _parts = ("actor", "q1", "q2", "target1", "target2", "actor_optimizer", "entropy_optimizer")
    explorer: Explorer  # CAE

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
    ) -> None:
        self.cfg, self.device = cfg, device
        self.actor = Actor(observation_space, action_space, cfg.hidden).to(device)
        action_dim = len(self.actor.scale)
        self.q1, self.q2, self.target1, self.target2 = (
            Critic(observation_space, action_dim, cfg.hidden).to(device) for _ in range(4)
        )
        self.target1.load_state_dict(self.q1.state_dict())
        self.target2.load_state_dict(self.q2.state_dict())
        self._critics: list[Tensor] = [*self.q1.parameters(), *self.q2.parameters()]
        self._targets: list[Tensor] = [*self.target1.parameters(), *self.target2.parameters()]
        self._actor: list[Tensor] = [*self.actor.parameters()]
        self.target_entropy = -float(action_dim)
        initial = 1.0 if cfg.entropy_coef is None else cfg.entropy_coef
        self.log_entropy_coef = torch.tensor(initial, device=device).log()
        lr = cfg.critic_learning_rate
        self.optimizer = Adam(self._critics, lr=lr)
        self.actor_optimizer = Adam(self._actor, lr=cfg.actor_learning_rate)
        self.entropy_optimizer = Adam([self.log_entropy_coef], lr=lr)
        self.embedding = Embedding.of(self.q1.embed, cfg.hidden[-1], action_space, takes_action=True)
        self.actor_losses: dict[str, Tensor] = {}  # of the actor's last update; the critics' come more often
        if cfg.compile:
            self.critic_step = torch.compile(self.critic_step)  # type: ignore[method-assign]
            self.actor_step = torch.compile(self.actor_step)  # type: ignore[method-assign]

    @torch.no_grad()
    def act(self, obs: Tree, step: int) -> Tensor:
        """Uniformly random actions before learning starts, then samples of the policy, [N, a]."""
        mean, log_std = self.actor.gaussian(tree_map(lambda x: x.to(self.device), obs))
        if step < self.cfg.learning_starts:
            return (2 * torch.rand_like(mean) - 1) * self.actor.scale + self.actor.centre
        return self.actor.squash(torch.randn_like(mean).mul_(log_std.exp()).add_(mean))

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """The squashed mean, for evaluation."""
        return self.actor.squash(self.actor.gaussian(tree_map(lambda x: x.to(self.device), obs))[0])

    @torch.no_grad()
    def target(self, batch: Batch, reward: Tensor) -> Tensor:
        """y = r + γ(1 − terminated)(min Q̄(s',a') − entropy_coef·log π(a'|s')), a' ~ π(s'), [B]."""
        action, log_prob = self.actor(batch.next_obs)
        q = torch.minimum(self.target1(batch.next_obs, action), self.target2(batch.next_obs, action))
        value: Tensor = q - self.log_entropy_coef.exp() * log_prob
        return reward + self.cfg.gamma * ~batch.terminated * value

    def critic_step(self, batch: Batch, reward: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """L_B = (Q₁ − y)² + (Q₂ − y)², means over the batch; Q₁ [B]; the gradient of L_B for both critics."""
        return regression((self.q1, self.q2), batch.obs, batch.action, self.target(batch, reward))

    @torch.no_grad()
    def actor_step(self, obs: Tree, seen: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Mean of entropy_coef·log π(a|s) − min Q(s,a), a ~ π(s), and its gradient for the actor, seen in a trace."""
        action, log_prob, back = self.actor.sample(seen[-1])
        q, slope = smallest((self.q1, self.q2), obs, action)
        coef = self.log_entropy_coef.exp()
        loss = (coef * log_prob - q).mean()
        g = back(slope / -len(q), (coef / len(q)).expand_as(q))
        return loss, parameter_gradients(self.actor.layers, seen, g)

    def update(self, batch: Batch, step: int) -> dict[str, Any]:
        """One step of the critics, those of actor and temperature when they are due, one of the targets."""
        cfg = self.cfg
        reward = batch.reward
        reward = reshaped(batch, self.explorer, cfg)  # CAE   r̃ = r + αβ
        loss, q, gradients = self.critic_step(batch, reward)
        losses = {"loss_bellman": loss, "q": q.mean()}
        loss, gradients = plus(loss, gradients, self.explorer.loss(batch), self.optimizer)  # CAE+   L_B + L_f
        self.optimizer.descend(gradients)
        if step % cfg.policy_delay == 0:
            self.update_actor(batch.obs, cfg.policy_delay)
        polyak_(self._targets, self._critics, cfg.tau)
        return losses | {"loss": loss} | self.actor_losses

    @torch.no_grad()
    def update_actor(self, obs: Tree, times: int) -> None:
        """So many times: one gradient step of the actor, then one of the temperature on fresh actions."""
        x = self.actor.flatten(obs)
        seen = trace(self.actor.layers, x)
        for _ in range(times):
            loss, gradients = self.actor_step(obs, seen)
            self.actor_optimizer.descend(gradients)
            coef = self.log_entropy_coef.exp()
            seen = trace(self.actor.layers, x)  # the fresh actions and the next step share this pass
            if self.cfg.entropy_coef is None:
                surplus = self.actor.sample(seen[-1])[1].mean() + self.target_entropy
                self.entropy_optimizer.descend([-coef * surplus])  # the loss −coef·surplus, by log coef
            self.actor_losses = {"loss_actor": loss, "entropy_coef": coef}

    def state_dict(self) -> dict[str, Any]:
        """Everything but the critics' optimiser, which an explorer may have joined."""
        state = {name: getattr(self, name).state_dict() for name in self._parts}
        return state | {"log_entropy_coef": self.log_entropy_coef, "actor_losses": self.actor_losses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._parts:
            getattr(self, name).load_state_dict(state[name])
        self.log_entropy_coef.copy_(state["log_entropy_coef"])
        self.actor_losses = state["actor_losses"]


Agent = SAC


def train(cfg: Config, run: Run) -> None:
    """The whole training loop."""
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    agent = SAC(cfg, envs.observation_space, envs.action_space, run.device)
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

        losses: dict[str, Any] = {}
        for t in range(max(step, cfg.learning_starts + 1), step + cfg.num_envs):
            losses = agent.update(replay.sample(cfg.batch_size).to(run.device), t)
        explorer.refresh(replay)  # CAE   A under today's φ, where the options ask for it
        if losses and run.due():
            losses |= explorer.metrics()  # CAE
            run.log(losses)
        run.evaluate(agent.policy, partial(Envs, cfg.env))

    card: dict[str, Any] = {"parameters": sum(p.numel() for p in agent._actor + agent._critics)}
    card |= explorer.card()  # CAE
    run.finish(card)
