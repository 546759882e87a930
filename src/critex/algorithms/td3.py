"""TD3 (Fujimoto et al., 2018) for continuous actions, with the critic as an explorer.

Read it from top to bottom: options, actor, agent, loop. The lines that add CAE carry the mark `# CAE`, those
that CAE+ adds on top `# CAE+`; without them this is plain TD3. The defaults are CleanRL's.
"""

from __future__ import annotations

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


@dataclass(kw_only=True)
class Config(ExplorationConfig, RunConfig):
    """Options of TD3."""

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
    """How far the target networks move at each of their updates."""
    learning_starts: int = 25_000
    """Environment steps with random actions before the first update."""
    learning_rate: float = 3e-4
    """Step size of Adam, for actor and critics."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions, where the actions range over [−1, 1]."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target's actions, in the same unit."""
    target_noise_clip: float = 0.5
    """Where that noise is cut off."""
    policy_delay: int = 2
    """Updates of the critics from one update of actor and targets to the next."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics; the critic's last one is φ."""
    compile: bool = False
    """Compile the gradients with torch.compile (needs a C++ compiler; the first updates take a minute)."""

    def __post_init__(self) -> None:
        require_at_least(
            self, steps=1, num_envs=1, buffer_size=1, batch_size=1, policy_delay=1, learning_starts=0
        )
        require_at_least(self, learning_rate=0)
        require_widths(self.hidden)


class Actor(nn.Module):
    """μ(s): one action, squashed by tanh into its range."""

    scale: Tensor
    centre: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], hidden: tuple[int, ...]
    ) -> None:
        super().__init__()
        scale, centre = action_range(action_space)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("centre", centre, persistent=False)
        self.register_buffer("low", centre - scale, persistent=False)
        self.register_buffer("high", centre + scale, persistent=False)
        self.flatten = Flatten(observation_space)
        self.body = mlp([self.flatten.dim, *hidden])
        self.head = nn.Linear(hidden[-1], len(scale))
        self.layers = relu_layers(self.body, self.head)  # for gradients by hand

    def forward(self, obs: Tree) -> Tensor:
        """μ(s), [..., a]."""
        return self.spread(self.head(self.body(self.flatten(obs))).tanh())

    def spread(self, squashed: Tensor) -> Tensor:
        """[−1, 1] to the range of the actions."""
        return torch.addcmul(self.centre, squashed, self.scale)

    def clip(self, action: Tensor) -> Tensor:
        """Actions cut to their range."""
        return action.clamp(self.low, self.high)


class TD3:
    """The agent: acts with noise, learns from replay with twin critics, a slow actor and slower targets."""

    _parts = ("actor", "actor_target", "q1", "q2", "target1", "target2", "actor_optimizer")
    explorer: Explorer  # CAE

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
    ) -> None:
        self.cfg, self.device = cfg, device
        self.actor, self.actor_target = (
            Actor(observation_space, action_space, cfg.hidden).to(device) for _ in range(2)
        )
        action_dim = len(self.actor.scale)
        self.q1, self.q2, self.target1, self.target2 = (
            Critic(observation_space, action_dim, cfg.hidden).to(device) for _ in range(4)
        )
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.target1.load_state_dict(self.q1.state_dict())
        self.target2.load_state_dict(self.q2.state_dict())
        self._actor: list[Tensor] = [*self.actor.parameters()]
        self._critics: list[Tensor] = [*self.q1.parameters(), *self.q2.parameters()]
        self._targets: list[Tensor] = [
            p for net in (self.actor_target, self.target1, self.target2) for p in net.parameters()
        ]
        self.optimizer = Adam(self._critics, lr=cfg.learning_rate)
        self.actor_optimizer = Adam(self._actor, lr=cfg.learning_rate)
        self.embedding = Embedding.of(self.q1.embed, cfg.hidden[-1], action_space, takes_action=True)
        self.actor_losses: dict[str, Tensor] = {}  # of the actor's last update; the critics' come more often
        if cfg.compile:
            self.critic_step = torch.compile(self.critic_step)  # type: ignore[method-assign]
            self.actor_step = torch.compile(self.actor_step)  # type: ignore[method-assign]

    @torch.no_grad()
    def act(self, obs: Tree, step: int) -> Tensor:
        """Uniformly random actions before learning starts, then μ(s) with noise, [N, a]."""
        actor, action = self.actor, self.policy(obs)
        if step < self.cfg.learning_starts:
            return actor.spread(2 * torch.rand_like(action) - 1)
        noise = torch.randn_like(action)
        return actor.clip(torch.addcmul(action, noise, actor.scale, value=self.cfg.exploration_noise))

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """μ(s), for evaluation."""
        action: Tensor = self.actor(tree_map(lambda x: x.to(self.device), obs))
        return action

    @torch.no_grad()
    def target(self, batch: Batch, reward: Tensor) -> Tensor:
        """y = r + γ(1 − terminated) min Q̄(s',a'), a' = μ̄(s') with clipped noise, [B]."""
        cfg, action = self.cfg, self.actor_target(batch.next_obs)
        noise = torch.randn_like(action).mul_(cfg.target_noise)
        noise.clamp_(-cfg.target_noise_clip, cfg.target_noise_clip)
        action = self.actor.clip(torch.addcmul(action, noise, self.actor.scale))
        q = torch.minimum(self.target1(batch.next_obs, action), self.target2(batch.next_obs, action))
        return reward + cfg.gamma * ~batch.terminated * q

    def critic_step(self, batch: Batch, reward: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """L_B = (Q₁ − y)² + (Q₂ − y)², means over the batch; Q₁ [B]; the gradient of L_B for both critics."""
        return regression((self.q1, self.q2), batch.obs, batch.action, self.target(batch, reward))

    @torch.no_grad()
    def actor_step(self, obs: Tree) -> tuple[Tensor, list[Tensor]]:
        """Mean of −Q₁(s, μ(s)), and its gradient for the actor."""
        actor = self.actor
        seen = trace(actor.layers, actor.flatten(obs))
        squashed = seen[-1].tanh()
        q, slope = smallest((self.q1,), obs, actor.spread(squashed))
        g = slope * actor.scale * (1 - squashed.square()) / -len(q)
        return -q.mean(), parameter_gradients(actor.layers, seen, g)

    def update(self, batch: Batch, step: int) -> dict[str, Any]:
        """One step of the critics; those of the actor and of all targets when they are due."""
        cfg = self.cfg
        reward = batch.reward
        reward = reshaped(batch, self.explorer, cfg)  # CAE   r̃ = r + αβ
        loss, q, gradients = self.critic_step(batch, reward)
        losses = {"loss_bellman": loss, "q": q.mean()}
        loss, gradients = plus(loss, gradients, self.explorer.loss(batch), self.optimizer)  # CAE+   L_B + L_f
        self.optimizer.descend(gradients)
        if step % cfg.policy_delay == 0:
            actor_loss, gradients = self.actor_step(batch.obs)
            self.actor_optimizer.descend(gradients)
            polyak_(self._targets, self._actor + self._critics, cfg.tau)
            self.actor_losses = {"loss_actor": actor_loss}
        return losses | {"loss": loss} | self.actor_losses

    def state_dict(self) -> dict[str, Any]:
        """Everything but the critics' optimiser, which an explorer may have joined."""
        return {name: getattr(self, name).state_dict() for name in self._parts} | {
            "losses": self.actor_losses
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._parts:
            getattr(self, name).load_state_dict(state[name])
        self.actor_losses = state["losses"]


Agent = TD3


def train(cfg: Config, run: Run) -> None:
    """The whole training loop."""
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    agent = TD3(cfg, envs.observation_space, envs.action_space, run.device)
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
