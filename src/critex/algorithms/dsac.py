"""DSAC-T (Duan et al., 2023), distributional soft actor-critic with three refinements, with the critic as an explorer.

Each critic models the soft return as a Gaussian Z(s,a) ~ N(Q, σ²) instead of its mean alone. The three refinements
(the T): the mean is regressed on a mean (expected value substituting), both targets come from the critic with
the smaller mean (twin value distributions), and a running σ̄ sets the clipping range and the weight of the loss
(variance-based gradient adjusting).

Read it from top to bottom: options, actor, losses, agent, loop. The lines that add CAE are marked `# CAE`, those
that CAE+ adds on top `# CAE+`; without them this is plain DSAC-T. The defaults are the authors' for MuJoCo.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal

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
from critex.data import Batch, Replay, Rollout, derive_seed, n_step_return
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.envs import Envs
from critex.explorers import ExplorationConfig, clip_reward
from critex.explorers import Setting, batch_bonus, make_explorer  # CAE
from critex.networks import ActorCriticConfig, Adam, Critic, action_range, encoder, minimise, mlp, polyak_
from critex.networks.mlp import Activation
from critex.ranges import Count, Natural, NonNegative, Probability, Size
from critex.run import Run, RunConfig

LOG_STD_MIN, LOG_STD_MAX = -20.0, 0.5
BIAS = 0.1  # keeps the divisions by σ finite
HUBER = 50.0


@dataclass(kw_only=True)
class Config(ActorCriticConfig, ExplorationConfig, RunConfig):
    """Options of DSAC-T."""

    env: str = "HalfCheetah-v4"
    """Id of the environment."""
    steps: Count = 20_010_000
    """Total environment steps: `learning_starts`, then `steps_per_update` per update."""
    num_envs: Count = 1
    """Environments stepped side by side."""
    eval_every: Natural = 50_000
    """Environment steps between two evaluations; 0: none."""

    buffer_size: Count = 1_000_000
    """Transitions in the replay buffer."""
    batch_size: Size = 256
    """Transitions per update."""
    gamma: Probability = 0.99
    """Discount γ (the authors use 0.999 on Hopper)."""
    n_step: Size = 1
    """Steps of reward in the target before it bootstraps."""
    tau: Probability = 0.005
    """Target update rate τ in θ̄ ← (1 − τ)θ̄ + τθ."""
    tau_std: Probability = 0.005
    """Weight of the current batch in the moving average σ̄ of each critic."""
    learning_starts: Natural = 10_000
    """Environment steps before the first update; the policy acts from the start."""
    steps_per_update: Count = 20
    """Environment steps between two updates."""
    updates_per_step: UpdateRatio | None = None
    """Updates per environment step, instead of `steps_per_update` (none: 1/steps_per_update)."""
    learning_rate: NonNegative = 1e-4
    """Learning rate of Adam, for actor and critics."""
    entropy_learning_rate: NonNegative = 3e-4
    """Learning rate of Adam for the temperature."""
    policy_delay: Count = 2
    """Updates of the critics per update of the actor, the temperature and the target networks."""
    entropy_coef: NonNegative | None = None
    """Temperature, the weight of the policy's entropy (none: learned, starting at e, with target entropy −dim(A))."""
    critic_loss: Literal["gaussian", "huber"] = "gaussian"
    """gaussian: the gradient of the Gaussian likelihood with bounded weights, as published; huber: the authors' later
    loss."""
    hidden: tuple[Count, ...] = (256, 256, 256)
    """Widths of the hidden layers of actor and critics; the critic's last one is φ."""
    activation: Activation = "gelu"
    """Activation of the hidden layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_buffer(self, self.chunk)

    @property
    def update_ratio(self) -> float | Fraction:
        """Updates per environment step."""
        return Fraction(1, self.steps_per_update) if self.updates_per_step is None else self.updates_per_step

    @property
    def chunk(self) -> int:
        """Vector steps of one iteration."""
        return math.ceil(1 / self.update_ratio / self.num_envs)


class Actor(nn.Module):
    """π(·|s): a Gaussian squashed by tanh into the range of the actions."""

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
        mean, log_std = self.head(self.body(self.encode(obs))).chunk(2, dim=-1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def squash(self, u: Tensor) -> Tensor:
        """Squash u [..., a] into the range of the actions."""
        return u.tanh() * self.scale + self.centre

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """A sample [..., a], reparameterised, and log π(a|s) [...]."""
        mean, log_std = self.gaussian(obs)
        noise = torch.randn_like(mean)
        squashed = torch.addcmul(mean, log_std.exp(), noise).tanh()
        # log N(u; mean, σ) of u = mean + σ·noise, and the change of variables a = scale·tanh(u) + centre
        log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        log_prob = (log_normal - ((1 + 1e-6 - squashed.square()) * self.scale).log()).sum(-1)
        return squashed * self.scale + self.centre, log_prob


def distribution(out: Tensor) -> tuple[Tensor, Tensor]:
    """Mean Q and standard deviation σ of Z, [...] each, from a critic's output [..., 2]."""
    mean, raw = out.unbind(-1)
    return mean, F.softplus(raw)


def clipped(y: Tensor, q: Tensor, mean_std: Tensor) -> Tensor:
    """C(y) = Q + clip(y − Q, ±3σ̄)."""
    return q + (y - q).clamp(-3 * mean_std, 3 * mean_std)


def gaussian_loss(q: Tensor, std: Tensor, y_mean: Tensor, y_sample: Tensor, mean_std: Tensor) -> Tensor:
    """−(σ̄² + ε) · mean[ (y_q − Q)/(σ² + ε) · Q + ((Q − C(y_z))² − σ²)/(σ³ + ε) · σ ], fractions held constant."""
    with torch.no_grad():
        q_slope = (y_mean - q) / (std.square() + BIAS)
        std_slope = ((q - clipped(y_sample, q, mean_std)).square() - std.square()) / (std.pow(3) + BIAS)
    return -(mean_std.square() + BIAS) * (q_slope * q + std_slope * std).mean()


def huber_loss(q: Tensor, std: Tensor, y_mean: Tensor, y_sample: Tensor, mean_std: Tensor) -> Tensor:
    """mean w·[ H(Q, y_q) + (σ² − H(Q, C(y_z)))/(σ + ε) · σ ], w = clip(σ̄²/(σ² + ε), 0.1, 10); fraction, w constant."""
    huber = partial(F.huber_loss, delta=HUBER, reduction="none")
    with torch.no_grad():
        weight = (mean_std.square() / (std.square() + BIAS)).clamp(0.1, 10)
        std_slope = (std.square() - huber(q, clipped(y_sample, q, mean_std))) / (std + BIAS)
    loss: Tensor = weight * (huber(q, y_mean) + std_slope * std)
    return loss.mean()


LOSSES = {"gaussian": gaussian_loss, "huber": huber_loss}


class DSAC:
    """The agent: acts by sampling, learns from replay with twin value distributions and a learned temperature.

    `critic` makes custom critics: modules with `forward(obs, action)` → mean and raw σ [B, 2] and
    `embed(obs, action)` → φ [B, d].
    """

    _parts = (
        "actor",
        "actor_target",
        "q1",
        "q2",
        "target1",
        "target2",
        "actor_optimizer",
        "entropy_optimizer",
    )

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
        critic: MakeCritic | None = None,
    ) -> None:
        self.cfg, self.device, self.updates = cfg, device, 0
        self.actor, self.actor_target = (
            Actor(cfg, observation_space, action_space).to(device) for _ in range(2)
        )
        action_dim = len(self.actor.scale)
        shape = (cfg.critic_widths, cfg.activation, cfg.layer_norm)
        make_critic: Any = critic or partial(Critic, observation_space, action_dim, *shape, outputs=2)
        self.q1, self.q2, self.target1, self.target2 = (make_critic().to(device) for _ in range(4))
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.target1.load_state_dict(self.q1.state_dict())
        self.target2.load_state_dict(self.q2.state_dict())
        self._online: list[Tensor] = [p for net in (self.actor, self.q1, self.q2) for p in net.parameters()]
        targets = (self.actor_target, self.target1, self.target2)
        self._targets: list[Tensor] = [p for net in targets for p in net.parameters()]
        self.mean_std = torch.zeros(2, device=device)  # σ̄ of each critic
        self.target_entropy = -float(action_dim)
        initial = math.e if cfg.entropy_coef is None else cfg.entropy_coef
        self.log_entropy_coef = torch.tensor(initial, device=device).log()
        self.log_entropy_coef.requires_grad_(cfg.entropy_coef is None)
        self.optimizer = Adam([*self.q1.parameters(), *self.q2.parameters()], lr=cfg.learning_rate)
        self.actor_optimizer = Adam(self.actor.parameters(), lr=cfg.learning_rate)
        self.entropy_optimizer = Adam([self.log_entropy_coef], lr=cfg.entropy_learning_rate)
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
    def act(self, obs: Tree) -> Tensor:
        """Samples of the policy, [N, a]."""
        mean, log_std = self.actor.gaussian(self.see(obs))
        return self.actor.squash(torch.randn_like(mean).mul_(log_std.exp()).add_(mean))

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """The squashed mean, for evaluation."""
        return self.actor.squash(self.actor.gaussian(self.see(obs))[0])

    @torch.no_grad()
    def targets(self, reward: Tensor, next_obs: Tree, discount: Tensor) -> tuple[Tensor, Tensor]:
        """y_q = r + discount·(Q̄ − entropy_coef·log π̄(a'|s')), and y_z with a sample Z̄ for Q̄, [B] each.

        a' ~ π̄(s'), and Q̄, σ̄ come from the target critic whose mean is smaller; Z̄ = Q̄ + zσ̄, |z| ≤ 3.
        """
        action, log_prob = self.actor_target(next_obs)
        q1, std1 = distribution(self.target1(next_obs, action))
        q2, std2 = distribution(self.target2(next_obs, action))
        spread = torch.randn_like(q1).clamp(-3, 3) * torch.where(q1 < q2, std1, std2)
        value = torch.minimum(q1, q2) - self.log_entropy_coef.exp() * log_prob
        y = reward + discount * value
        return y, y + discount * spread

    def critic_loss(
        self, obs: Tree, action: Tensor, y_mean: Tensor, y_sample: Tensor, tau: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """L_B, the sum over both critics; the σ̄ that it used, [2]; and Q₁, [B]."""
        q1, std1 = distribution(self.q1(obs, action))
        q2, std2 = distribution(self.q2(obs, action))
        mean_std = self.mean_std.lerp(torch.stack([std1.mean(), std2.mean()]).detach(), tau)
        loss = LOSSES[self.cfg.critic_loss]
        loss1, loss2 = (
            loss(q, std, y_mean, y_sample, mean_std[i]) for i, (q, std) in enumerate(((q1, std1), (q2, std2)))
        )
        return loss1 + loss2, mean_std, q1.detach()

    def actor_loss(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Mean of entropy_coef·log π(a|s) − min Q(s,a), a ~ π(s); and the mean of log π(a|s)."""
        action, log_prob = self.actor(obs)
        q = torch.minimum(self.q1(obs, action)[..., 0], self.q2(obs, action)[..., 0])
        loss: Tensor = self.log_entropy_coef.exp().detach() * log_prob - q
        return loss.mean(), log_prob.detach().mean()

    def update(self, batch: Batch) -> dict[str, Any]:
        """One gradient step of the critics; every `policy_delay` updates also actor, temperature and target update.

        `batch` is [B], or [n, B] for n-step returns.
        """
        cfg = self.cfg
        reward = batch.reward
        bonus = batch_bonus(batch, self.explorer, cfg)  # CAE
        reward = reward + self.explorer.alpha.value * bonus  # CAE   r̃ = r + αβ
        reward = clip_reward(reward, cfg)
        batch, reward, next_obs, discount = n_step_return(batch, reward, cfg.gamma)
        targets = self.targets(reward, next_obs, discount)
        tau = cfg.tau_std if self.updates else 1.0  # σ̄ starts as the mean of the first batch
        loss, self.mean_std, q = self.critic_loss(batch.obs, batch.action, *targets, tau)
        losses = {"loss_bellman": loss.detach(), "q": q.mean(), "std": self.mean_std[0]}
        loss = loss + self.explorer.loss(batch)  # CAE+   L_B + L_f
        delayed = self.updates % cfg.policy_delay == 0
        if delayed:
            self.update_actor(batch.obs)  # uses the critics before their step
        minimise(loss, self.optimizer)
        if delayed:
            polyak_(self._targets, self._online, cfg.tau)
        self.updates += 1
        return losses | {"loss": loss.detach()} | self.actor_losses

    def update_actor(self, obs: Tree) -> None:
        """One gradient step of the actor, and one of the temperature on −log(entropy_coef)·(log π + H̄)."""
        loss, log_prob = self.actor_loss(obs)
        minimise(loss, self.actor_optimizer)
        self.actor_losses = {
            "loss_actor": loss.detach(),
            "entropy_coef": self.log_entropy_coef.detach().exp(),
        }
        if self.log_entropy_coef.requires_grad:
            minimise(-self.log_entropy_coef * (log_prob + self.target_entropy), self.entropy_optimizer)

    def state_dict(self) -> dict[str, Any]:
        state = {name: getattr(self, name).state_dict() for name in self._parts}
        state |= {"updates": self.updates, "mean_std": self.mean_std, "losses": self.actor_losses}
        return state | {"log_entropy_coef": self.log_entropy_coef.detach()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._parts:
            getattr(self, name).load_state_dict(state[name])
        self.updates, self.actor_losses = state["updates"], state["losses"]
        self.mean_std = state["mean_std"].to(self.device)
        self.log_entropy_coef.data.copy_(state["log_entropy_coef"])


Agent = DSAC


def train(cfg: Config, run: Run, critic: MakeCritic | None = None) -> None:
    """The whole training loop."""

    def due(step: int) -> int:
        return updates_due(max(step - cfg.learning_starts, 0), cfg.update_ratio)

    per_iteration = cfg.chunk * cfg.num_envs
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    agent = DSAC(cfg, envs.observation_space, envs.action_space, run.device, critic)
    require_updates(cfg, due(math.ceil(cfg.steps / per_iteration) * per_iteration))
    replay, rollout = Replay(cfg.buffer_size, derive_seed(cfg.seed, "replay")), Rollout()
    parts: dict[str, Any] = {"agent": agent, "optimizer": agent.optimizer, "replay": replay, "envs": envs}
    parts["explorer"] = explorer = agent.explorer  # CAE
    run.attach(**parts)

    obs = envs.obs
    for _ in run.steps(cfg.steps, per_iteration):
        for _ in range(cfg.chunk):
            transition, obs = envs.step(agent.act(obs))
            rollout.add(transition)
        collected = rollout.stack()[0].to(run.device)  # [T, N]
        collected.bonus = explorer.bonus_rollout(collected)  # CAE   scaled β; then A ← A + φφᵀ
        explorer.alpha.observe(collected.reward, collected.bonus, collected.episode_start)  # CAE   auto α
        replay.add(collected.map(lambda x: x.flatten(0, 1)))
        run.episodes(envs.pop_episodes())

        losses: dict[str, Any] = {}
        while agent.updates < due(run.step):
            batch = replay.sample_windows(cfg.batch_size, cfg.n_step, cfg.num_envs)
            losses = agent.update(batch.to(run.device))
        explorer.refresh(replay)  # CAE   rebuild A under the current φ, if rebuild_every is set
        if losses and run.due():
            losses |= explorer.metrics()  # CAE
            run.log(losses)
        run.evaluate(agent.policy, partial(Envs, cfg.env))

    card: dict[str, Any] = {"parameters": sum(p.numel() for p in agent._online)}
    card |= explorer.card()  # CAE
    run.finish(card)
