"""Proximal policy optimisation (Schulman et al., 2017), with the critic as an explorer.

Read it from top to bottom: options, losses, agent, loop. The lines that add CAE are marked `# CAE`,
those that CAE+ adds on top `# CAE+`; without them this is plain PPO. The defaults are CleanRL's for continuous
actions. Discrete actions work too. For images and dicts, policy and value share a convolutional trunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from critex.algorithms.agent import MakeCritic, embedding_width, fitting_minibatches
from critex.console import notice
from critex.data import Batch, Rollout, derive_seed, gae
from critex.data.normalize import CLIP, ObservationNormalizer, RewardNormalizer
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.envs import Envs
from critex.errors import UserError
from critex.explorers import ExplorationConfig, clip_reward
from critex.explorers import Setting, batch_bonus, make_explorer  # CAE
from critex.networks import ActorCriticConfig, Adam, Flatten, fast_ppo, faster, is_flat, minimise
from critex.networks.mlp import Activation
from critex.networks.policies import Categorical, Gaussian, Trunk, Value
from critex.ranges import Count, NonNegative, Positive, Probability
from critex.run import Run, RunConfig


@dataclass(kw_only=True)
class Config(ActorCriticConfig, ExplorationConfig, RunConfig):
    """Options of PPO."""

    env: str = "HalfCheetah-v4"
    """Id of the environment."""
    steps: Count = 1_000_000
    """Total environment steps, rounded down to whole rollouts."""
    num_envs: Count = 1
    """Environments stepped side by side."""

    rollout: Count = 2048
    """Steps of each environment between two updates."""
    epochs: Count = 10
    """Epochs (passes over the rollout) per update."""
    minibatches: Count = 32
    """Minibatches (gradient steps) per epoch."""
    learning_rate: NonNegative = 3e-4
    """Learning rate of Adam."""
    anneal: bool = True
    """Anneal the learning rate linearly to zero over the run."""
    gamma: Probability = 0.99
    """Discount γ."""
    gae_lambda: Probability = 0.95
    """λ of generalised advantage estimation."""
    clip: Positive = 0.2
    """ε of the clipped objective: it gains nothing from a ratio of probabilities beyond 1 ± ε."""
    clip_value: bool = True
    """Also clip the change of the value estimates to ± `clip`."""
    target_kl: NonNegative | None = None
    """Stop an update after the first epoch with a `kl` above this (none: never)."""
    value_coef: NonNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: NonNegative = 0.0
    """Weight of the policy's entropy."""
    max_grad_norm: Positive = 0.5
    """Clip the gradient norm to this. Actor and critic are clipped together, the explorer's parameters separately."""
    normalize_advantage: bool = True
    """Normalise the advantages of each minibatch to mean 0 and standard deviation 1."""
    normalize_obs: bool = True
    """Normalise vector observations by their running mean and standard deviation, clipped at ±10; images and dicts
    stay unchanged."""
    normalize_reward: bool = True
    """Divide rewards by the running standard deviation of their discounted sum, clipped at ±10."""
    normalize_bonus: bool = False
    """With normalised rewards: add the bonus before normalisation instead of after it. α is then in the unit of the
    raw reward."""
    bootstrap_truncated: bool = False
    """Bootstrap truncated episodes from the value of their true final observation. CleanRL, and hence the paper,
    uses zero."""
    hidden: tuple[Count, ...] = (64, 64)
    """Widths of the hidden layers of actor and critic; the critic's last one is φ."""
    activation: Activation = "tanh"
    """Activation of the hidden layers."""
    shared: bool | None = None
    """Whether actor and critic share all layers but the last (none: only for images and dicts)."""
    fast: bool = True
    """Use hand-written gradients if the networks are plain Linear+Tanh: the same numbers, faster."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bonus_in == "value":
            raise UserError("bonus_in=value needs actions chosen by their values; ppo takes bonus_in=reward")
        batch = self.rollout * self.num_envs
        if batch % self.minibatches or batch < 2 * self.minibatches:
            fit = "--rollout 2 --minibatches 1"
            if batch > 1:
                fit = f"--minibatches {fitting_minibatches(min(self.minibatches, batch // 2), batch)}"
            raise UserError(
                f"a rollout of {self.rollout} × {self.num_envs} steps does not split into {self.minibatches} equal "
                f"minibatches of at least 2; {fit} would"
            )
        if self.steps < batch:
            raise UserError(
                f"{self.steps} steps are less than one rollout of {batch}; use more --steps or a shorter --rollout"
            )


def policy_loss(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """L_π = mean of max(−Âρ, −Â·clip(ρ, 1 ± clip)), ρ = π(a|s)/π_old(a|s)."""
    ratio = (log_prob - old_log_prob).exp()
    return -torch.minimum(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip)).mean()


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """L_V = ½ mean of max((V − G)², (clip(V, V_old ± clip) − G)²); without `clip` ½ mean of (V − G)²."""
    squares = (value - target).square()
    if clip is not None:
        clipped = old_value + (value - old_value).clamp(-clip, clip)
        squares = torch.maximum(squares, (clipped - target).square())
    return 0.5 * squares.mean()


def normalized(advantage: Tensor) -> Tensor:
    """The advantages of each minibatch [M, B] with mean 0 and standard deviation 1."""
    return (advantage - advantage.mean(-1, keepdim=True)) / (advantage.std(-1, keepdim=True) + 1e-8)


class PPO:
    """The agent: acts by sampling, learns from each rollout in several epochs, then discards it.

    `critic` makes a custom critic: a module with `embed(obs)` → φ(s) [..., d] and `head(phi)` → V(s) [..., 1],
    whose `forward` is head(embed(obs)).
    """

    _parts = ("actor", "critic", "obs_normalizer", "reward_normalizer")

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
        critic: MakeCritic | None = None,
    ) -> None:
        self.cfg, self.device = cfg, device
        self.flat = is_flat(observation_space)
        if self.flat:
            self.flatten = Flatten(observation_space)
            self.seen_space: gym.Space[Any] = gym.spaces.Box(-CLIP, CLIP, (self.flatten.dim,))
        else:
            self.seen_space = observation_space
        self.shared = critic is None and (not self.flat if cfg.shared is None else cfg.shared)
        if self.shared and cfg.actor_widths != cfg.critic_widths:
            raise UserError(
                "actor and critic share their hidden layers here; use --hidden, or --shared False"
            )
        trunk = Trunk(self.seen_space, cfg.actor_widths, cfg.activation, cfg.layer_norm)
        self.actor: Gaussian | Categorical
        match action_space:
            case gym.spaces.Discrete():
                self.actor = Categorical(trunk, action_space).to(device)
            case gym.spaces.Box():
                self.actor = Gaussian(trunk, action_space).to(device)
            case _:
                raise UserError(f"ppo needs Box or Discrete actions, {cfg.env} has {action_space}")
        if not self.shared and critic is None:
            trunk = Trunk(self.seen_space, cfg.critic_widths, cfg.activation, cfg.layer_norm)
        self.critic: Any = (Value(trunk) if critic is None else critic()).to(device)
        self.weights = list(dict.fromkeys([*self.actor.parameters(), *self.critic.parameters()]))
        self.optimizer = Adam(self.weights, lr=cfg.learning_rate, eps=1e-5)
        self.generator = torch.Generator().manual_seed(derive_seed(cfg.seed, "policy"))
        self.obs_normalizer = ObservationNormalizer(self.flatten.dim if self.flat else 0)
        self.reward_normalizer = RewardNormalizer(cfg.gamma, cfg.num_envs)
        width = embedding_width(self.critic, self.seen_space, action_space, takes_action=False)
        embed: Any = self.critic.embed
        self.embedding = Embedding.of(embed, width, action_space, takes_action=False)
        setting = Setting(self.embedding, self.seen_space, cfg.num_envs, cfg.seed)  # CAE
        self.explorer = make_explorer(cfg, setting, rollouts=True)  # CAE
        self.optimizer.add_param_group({"params": self.explorer.learned()})  # CAE+

    def see(self, obs: Tree, learn: bool | Tensor = False) -> Tree:
        """Raw observations as the networks see them: vectors normalised, [N, o], others unchanged.

        `learn` selects the observations that first update the statistics: none, all, or those of a mask [N].
        """
        if not self.flat:
            return obs
        flat: Tensor = self.flatten(obs)
        if not self.cfg.normalize_obs:
            return flat
        if learn is not False:
            self.obs_normalizer.update(flat if learn is True else flat[learn])
        return self.obs_normalizer(flat)

    def to_device(self, obs: Tree) -> Tree:
        """Observations on the device of the networks."""
        return tree_map(lambda x: x.to(self.device), obs)

    def act(self, seen: Tree, noise: Tensor) -> Tensor:
        """A sample of π(·|s), [N, …], computed from the noise; call it under `no_grad`."""
        return self.actor.sample(self.actor(self.to_device(seen)), noise.to(self.device)).cpu()

    @faster(fast_ppo.acting, nn.Tanh, "cpu", actor=(Gaussian, Categorical))
    def acting(self) -> Callable[[Tree, Tensor], Tensor]:
        """`act` for the steps of a rollout, during which the weights do not change."""
        return self.act

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """The most likely action in the environment's format, for evaluation."""
        return self.actor.to_env(self.actor.mode(self.actor(self.to_device(self.see(obs)))))

    def value(self, phi: Tensor) -> Tensor:
        """V(s) = θᵀφ(s), [...]."""
        value: Tensor = self.critic.head(phi).squeeze(-1)
        return value

    def logits(self, obs: Tree, phi: Tensor) -> Tensor:
        """The output of the actor, [..., a]; φ(s) is reused if the trunk is shared."""
        out: Tensor = self.actor.head(phi) if self.shared else self.actor(obs)
        return out

    def total_reward(self, rollout: Batch) -> Tensor:
        """r̃ = r + αβ [T, N]; rewards are normalised before the bonus is added, or after it (`normalize_bonus`)."""
        cfg, reward = self.cfg, rollout.reward
        if cfg.normalize_reward and not cfg.normalize_bonus:
            reward = self.reward_normalizer(reward, rollout.terminated)
        bonus = batch_bonus(rollout, self.explorer, cfg)  # CAE
        alpha = self.explorer.alpha.observe(reward, bonus, rollout.episode_start)  # CAE
        reward = reward + alpha * bonus  # CAE   r̃ = r + αβ, before any advantage
        reward = clip_reward(reward, cfg)
        if cfg.normalize_reward and cfg.normalize_bonus:
            reward = self.reward_normalizer(reward, rollout.terminated)
        return reward

    def update(self, rollout: Batch, phi: Tensor, last: Tree) -> dict[str, Any]:
        """Learn from a rollout [T, N] with its φ(s) [T, N, d]; `last` [N, …] are the observations after it."""
        cfg, obs, action = self.cfg, rollout.obs, rollout.action
        reward = self.total_reward(rollout)
        with torch.no_grad():
            value, last_value = self.value(phi), self.value(self.critic.embed(last))
            final_value = None
            if cfg.bootstrap_truncated:
                final_value = self.value(self.critic.embed(rollout.next_obs))
            log_prob = self.actor.log_prob(self.logits(obs, phi), action)
        advantage, target = gae(
            reward,
            value,
            last_value,
            rollout.terminated,
            rollout.truncated,
            gamma=cfg.gamma,
            lam=cfg.gae_lambda,
            final_value=final_value,
        )

        columns: Any = {"obs": obs, "action": action, "log_prob": log_prob}
        columns |= {"value": value, "target": target, "advantage": advantage}
        columns = tree_map(lambda x: x.flatten(0, 1), columns)  # [T·N, …]
        flat = self.explorer.prepare(rollout).map(lambda x: x.flatten(0, 1))  # CAE+
        learned = self.explorer.learned()  # CAE+
        size = rollout.reward.numel() // cfg.minibatches
        for _ in range(cfg.epochs):
            # Shuffled once per epoch, so that minibatches are slices; all advantages are normalised in one call.
            order = torch.randperm(size * cfg.minibatches, generator=self.generator).to(self.device)
            shuffled: Any = tree_map(partial(torch.index_select, dim=0, index=order), columns)
            if cfg.normalize_advantage:
                shuffled["advantage"] = normalized(shuffled["advantage"].view(-1, size)).flatten()
            for begin in range(0, len(order), size):
                chosen = slice(begin, begin + size)
                batch: Any = tree_map(itemgetter(chosen), shuffled)
                loss, phi, losses = self.loss(**batch)
                if learned:  # CAE+
                    pairs = flat.map(itemgetter(order[chosen]))  # CAE+
                    loss = loss + self.explorer.loss(pairs, phi)  # CAE+   L + L_f
                minimise(loss, self.optimizer, cfg.max_grad_norm)
            if cfg.target_kl is not None and self.compare(**columns)["kl"] > cfg.target_kl:
                break
        return {"loss": loss.detach()} | losses | self.compare(**columns)

    @faster(fast_ppo.loss, nn.Tanh, "cpu", actor=(Gaussian, Categorical), critic=Value)
    def loss(
        self,
        obs: Tree,
        action: Tensor,
        log_prob: Tensor,
        value: Tensor,
        target: Tensor,
        advantage: Tensor,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """L = L_π + value_coef·L_V − entropy_coef·H on a minibatch [B], its φ(s) [B, d], and the parts of L."""
        cfg, phi = self.cfg, self.critic.embed(obs)
        out = self.logits(obs, phi)
        actor = policy_loss(self.actor.log_prob(out, action), log_prob, advantage, cfg.clip)
        critic = value_loss(self.value(phi), value, target, cfg.clip if cfg.clip_value else None)
        loss = actor + cfg.value_coef * critic
        if cfg.entropy_coef:
            loss = loss - cfg.entropy_coef * self.actor.entropy(out)
        return loss, phi, {"loss_policy": actor.detach(), "loss_value": critic.detach()}

    @torch.no_grad()
    def compare(
        self, obs: Tree, action: Tensor, log_prob: Tensor, value: Tensor, target: Tensor, advantage: Tensor
    ) -> dict[str, Tensor]:
        """KL, clip fraction and entropy after the update, over the whole rollout; explained variance of the old values."""
        out = self.actor(obs)
        log_ratio = self.actor.log_prob(out, action) - log_prob
        ratio = log_ratio.exp()
        return {
            "kl": (ratio - 1 - log_ratio).mean(),
            "clipped": ((ratio - 1).abs() > self.cfg.clip).float().mean(),
            "entropy": self.actor.entropy(out),
            "explained_variance": 1 - (target - value).var() / target.var(),
            "value": value.mean(),
        }

    def state_dict(self) -> dict[str, Any]:
        """Networks, normalisers and generator."""
        parts = {name: getattr(self, name).state_dict() for name in self._parts}
        return {**parts, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        for name in self._parts:
            getattr(self, name).load_state_dict(state[name])
        self.generator.set_state(state["generator"])


Agent = PPO


def train(cfg: Config, run: Run, critic: MakeCritic | None = None) -> None:
    """The whole training loop."""
    per_iteration = cfg.rollout * cfg.num_envs
    total = cfg.steps // per_iteration * per_iteration
    if total < cfg.steps:
        notice(f"ppo trains in whole rollouts of {per_iteration:,} steps: {total:,} of {cfg.steps:,}")
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    agent = PPO(cfg, envs.observation_space, envs.action_space, run.device, critic)
    agent.see(envs.obs, learn=True)
    parts: dict[str, Any] = {"agent": agent, "optimizer": agent.optimizer, "envs": envs}
    parts["explorer"] = explorer = agent.explorer  # CAE
    run.attach(**parts)

    rollout, obs = Rollout(), agent.see(envs.obs)
    for step in run.steps(total, per_iteration):
        act = agent.acting()
        with torch.no_grad():
            for noise in agent.actor.noise(cfg.rollout, cfg.num_envs, generator=agent.generator):
                action = act(obs, noise)
                transition, raw = envs.step(agent.actor.to_env(action))
                restarted = raw is not transition.next_obs
                next_obs = agent.see(transition.next_obs, learn=True)
                transition.obs, transition.action, transition.next_obs = obs, action, next_obs
                rollout.add(transition)
                obs = agent.see(raw, learn=transition.ended) if restarted else next_obs
        batch, _ = rollout.stack()
        run.visits(batch)
        batch = batch.to(run.device)
        with torch.no_grad():
            phi = agent.embedding.phi(batch.obs)
        batch.bonus = explorer.bonus_rollout(batch, phi)  # CAE   scaled β; then A ← A + φφᵀ
        run.episodes(envs.pop_episodes())

        if cfg.anneal:
            for group in agent.optimizer.param_groups:
                group["lr"] = cfg.learning_rate * (1 - step / total)
        losses = agent.update(batch, phi, agent.to_device(obs))
        if run.due():
            losses |= explorer.metrics()  # CAE
            run.log(losses)
        run.evaluate(agent.policy, partial(Envs, cfg.env))

    card: dict[str, Any] = {"parameters": sum(p.numel() for p in agent.weights)}
    card |= explorer.card()  # CAE
    run.finish(card)
