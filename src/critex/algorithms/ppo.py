"""Proximal policy optimisation (Schulman et al., 2017), with the critic as an explorer.

Read it from top to bottom: options, networks, losses, agent, loop. The lines that add CAE carry the mark `# CAE`,
those that CAE+ adds on top `# CAE+`; without them this is plain PPO. The defaults are CleanRL's for continuous
actions. Discrete actions work too, and images and dicts, for which policy and value share a convolutional trunk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data import Batch, Rollout, derive_seed, gae
from critex.data.normalize import CLIP, ObservationNormalizer, RewardNormalizer
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.envs import Envs
from critex.errors import UserError, require_at_least, require_widths
from critex.explorers import ExplorationConfig
from critex.explorers import Explorer, Setting, make_explorer, reshaped  # CAE
from critex.networks import Adam, Flatten, encoder, is_flat, minimise
from critex.run import Run, RunConfig


@dataclass(kw_only=True)
class Config(ExplorationConfig, RunConfig):
    """Options of PPO."""

    env: str = "HalfCheetah-v4"
    """Id of the environment."""
    steps: int = 1_000_000
    """Environment steps in all, rounded down to whole rollouts."""
    num_envs: int = 1
    """Environments stepped side by side."""

    rollout: int = 2048
    """Steps of each environment between two updates."""
    epochs: int = 10
    """Passes over the rollout in one update."""
    minibatches: int = 32
    """Gradient steps of one pass."""
    learning_rate: float = 3e-4
    """Step size of Adam."""
    anneal: bool = True
    """Let the step size fall linearly to zero over the run."""
    gamma: float = 0.99
    """Discount γ."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """How far the ratio of probabilities may move from 1 before its gradient is cut."""
    clip_value: bool = True
    """Cut the gradient of values that moved further than `clip`, too."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    entropy_coef: float = 0.0
    """Weight of the policy's entropy."""
    max_grad_norm: float = 0.5
    """Longest gradient, over all parameters together."""
    normalize_advantage: bool = True
    """Give the advantages of each minibatch mean 0 and standard deviation 1."""
    normalize_obs: bool = True
    """Normalise vector observations by their running mean and standard deviation, clipped at ±10; images and
    dicts are left as they are."""
    normalize_reward: bool = True
    """Divide rewards by the running standard deviation of their discounted sum, clipped at ±10."""
    normalize_bonus: bool = False
    """Where rewards are normalised, add the bonus before that instead of after it: α is then in the unit of the
    raw reward."""
    bootstrap_truncated: bool = False
    """Where an episode was cut off by the clock, count the value of its true last observation as what would
    have followed. CleanRL, and with it the paper, counts zero."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critic; the critic's last one is φ."""
    shared: bool | None = None
    """Whether actor and critic share all layers but the last (none: for images and dicts)."""

    def __post_init__(self) -> None:
        require_at_least(self, num_envs=1, rollout=1, epochs=1, minibatches=1, learning_rate=0)
        require_widths(self.hidden)
        if self.bonus_in == "value":
            raise UserError("bonus_in=value needs actions chosen by their values; ppo takes bonus_in=reward")
        batch = self.rollout * self.num_envs
        if batch % self.minibatches or batch < 2 * self.minibatches:
            fit = max((m for m in range(2, self.minibatches) if batch % m == 0 and batch >= 2 * m), default=1)
            raise UserError(
                f"a rollout of {self.rollout} × {self.num_envs} steps does not split into {self.minibatches} equal "
                f"minibatches of at least 2; --minibatches {fit} would"
            )
        if self.steps < batch:
            raise UserError(
                f"{self.steps} steps are less than one rollout of {batch}; shorten it with --rollout"
            )


class Trunk(nn.Module):
    """φ(s): tanh layers, for images and dicts on top of the encoder of their space.

    The layers are written out: for one environment the bookkeeping of nn.Sequential costs more than the sums.
    """

    def __init__(self, space: gym.Space[Any], hidden: tuple[int, ...]) -> None:
        super().__init__()
        encode = encoder(space)
        self.encode = None if is_flat(space) else encode
        self.dim = hidden[-1]
        self.layers: Any = nn.ModuleList(
            orthogonal(*pair, math.sqrt(2)) for pair in pairwise([encode.dim, *hidden])
        )

    def forward(self, obs: Tree) -> Tensor:
        """φ(s), [..., dim]."""
        x: Any = obs if self.encode is None else self.encode(obs)
        for layer in self.layers:
            x = F.linear(x, layer.weight, layer.bias).tanh_()
        phi: Tensor = x
        return phi


class Network(nn.Module):
    """θᵀφ(s): a trunk φ and a linear head θ."""

    def __init__(self, trunk: Trunk, outputs: int, gain: float) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = orthogonal(trunk.dim, outputs, gain)

    def embed(self, obs: Tree) -> Tensor:
        """φ(s), [..., d]."""
        return self.trunk.forward(obs)

    def read(self, phi: Tensor) -> Tensor:
        """θᵀφ, [..., outputs]."""
        return F.linear(phi, self.head.weight, self.head.bias)

    def forward(self, obs: Tree) -> Tensor:
        """θᵀφ(s), [..., outputs]."""
        return self.read(self.embed(obs))


class Critic(Network):
    """V(s) = θᵀφ(s)."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__(trunk, 1, gain=1.0)

    def read(self, phi: Tensor) -> Tensor:
        """V(s), [...]."""
        return super().read(phi).squeeze(-1)


class Gaussian(Network):
    """π(·|s) = N(μ(s), diag σ²), unsquashed, σ learned and the same in every state; `forward` gives μ [..., a]."""

    def __init__(self, trunk: Trunk, space: gym.spaces.Box) -> None:
        self.shape, self.dim = space.shape, math.prod(space.shape)
        super().__init__(trunk, self.dim, gain=0.01)
        self.log_std = nn.Parameter(torch.zeros(self.dim))
        self.low, self.high = (torch.from_numpy(bound.ravel()).float() for bound in (space.low, space.high))

    def noise(self, *shape: int, generator: torch.Generator) -> Tensor:
        """What `sample` needs for actions [*shape, a]."""
        return torch.randn(*shape, self.dim, generator=generator)

    def sample(self, mean: Tensor, noise: Tensor) -> Tensor:
        """μ + σz."""
        return torch.addcmul(mean, self.log_std.exp(), noise)

    def mode(self, mean: Tensor) -> Tensor:
        """The likeliest action."""
        return mean

    def log_prob(self, mean: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) = −½ Σ ((a − μ)/σ)² − Σ log σ − ½ dim·log 2π, [...]."""
        z = (action - mean) * (-self.log_std).exp()
        return -0.5 * z.square().sum(-1) - (self.log_std.sum() + 0.5 * self.dim * math.log(2 * math.pi))

    def entropy(self, mean: Tensor) -> Tensor:
        """Σ log σ + ½ dim·(1 + log 2π)."""
        return self.log_std.sum() + 0.5 * self.dim * (1 + math.log(2 * math.pi))

    def to_env(self, action: Tensor) -> Tensor:
        """What the environment gets: actions clipped to their range."""
        return action.cpu().clamp(self.low, self.high).view(-1, *self.shape)


class Categorical(Network):
    """π(a|s) = softmax(logits)_a; actions are integers [...], `forward` gives the logits [..., A]."""

    def __init__(self, trunk: Trunk, space: gym.spaces.Discrete) -> None:
        self.dim = int(space.n)
        super().__init__(trunk, self.dim, gain=0.01)

    def noise(self, *shape: int, generator: torch.Generator) -> Tensor:
        """What `sample` needs for actions [*shape]: Gumbel noise."""
        return -torch.empty(*shape, self.dim).exponential_(generator=generator).log()

    def sample(self, logits: Tensor, noise: Tensor) -> Tensor:
        """argmax of logits + Gumbel noise, which has the law of the softmax."""
        return (logits + noise).argmax(-1)

    def mode(self, logits: Tensor) -> Tensor:
        """The likeliest action."""
        return logits.argmax(-1)

    def log_prob(self, logits: Tensor, action: Tensor) -> Tensor:
        """log π(a|s), [...]."""
        return logits.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, logits: Tensor) -> Tensor:
        """Mean over states of −Σ_a π log π."""
        log_p = logits.log_softmax(-1)
        return -(log_p.exp() * log_p).sum(-1).mean()

    def to_env(self, action: Tensor) -> Tensor:
        """What the environment gets: the action."""
        return action


def orthogonal(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A linear layer with orthogonal weights of this gain and zero bias."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


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
    """Each minibatch [M, B] with mean 0 and standard deviation 1."""
    return (advantage - advantage.mean(-1, keepdim=True)) / (advantage.std(-1, keepdim=True) + 1e-8)


class PPO:
    """The agent: acts by sampling, learns from each rollout in several passes, then throws it away."""

    _parts = ("actor", "critic", "obs_normalizer", "reward_normalizer")
    explorer: Explorer  # CAE

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
    ) -> None:
        self.cfg, self.device = cfg, device
        self.flat = is_flat(observation_space)
        if self.flat:
            self.flatten = Flatten(observation_space)
            self.seen_space: gym.Space[Any] = gym.spaces.Box(-CLIP, CLIP, (self.flatten.dim,))
        else:
            self.seen_space = observation_space
        self.shared = not self.flat if cfg.shared is None else cfg.shared
        trunk = Trunk(self.seen_space, cfg.hidden)
        self.actor: Gaussian | Categorical
        match action_space:
            case gym.spaces.Discrete():
                self.actor = Categorical(trunk, action_space).to(device)
            case gym.spaces.Box():
                self.actor = Gaussian(trunk, action_space).to(device)
            case _:
                raise UserError(f"ppo needs Box or Discrete actions, {cfg.env} has {action_space}")
        self.critic = Critic(trunk if self.shared else Trunk(self.seen_space, cfg.hidden)).to(device)
        self.weights = list(dict.fromkeys([*self.actor.parameters(), *self.critic.parameters()]))
        self.optimizer = Adam(self.weights, lr=cfg.learning_rate, eps=1e-5)
        self.generator = torch.Generator().manual_seed(derive_seed(cfg.seed, "policy"))
        self.obs_normalizer = ObservationNormalizer(self.flatten.dim if self.flat else 0)
        self.reward_normalizer = RewardNormalizer(cfg.gamma, cfg.num_envs)
        self.embedding = Embedding.of(self.critic.embed, cfg.hidden[-1], action_space, takes_action=False)

    def see(self, obs: Tree, learn: bool | Tensor = False) -> Tree:
        """Raw observations as the networks see them: vectors normalised, [N, o], others as they are.

        `learn` says from which of them the statistics learn first: none, all, or those of a mask [N].
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
        """The same where the networks are."""
        return tree_map(lambda x: x.to(self.device), obs)

    def act(self, seen: Tree, noise: Tensor) -> Tensor:
        """A sample of π(·|s), [N, …], made of the noise; call it without gradient."""
        return self.actor.sample(self.actor(self.to_device(seen)), noise.to(self.device)).cpu()

    @torch.no_grad()
    def policy(self, obs: Tree) -> Tensor:
        """The likeliest action as the environment takes it, for evaluation."""
        return self.actor.to_env(self.actor.mode(self.actor(self.to_device(self.see(obs)))))

    def update(self, rollout: Batch, phi: Tensor, last: Tree) -> dict[str, Any]:
        """Learn from a rollout [T, N] with its φ(s) [T, N, d]; `last` [N, …] is what was seen after it."""
        cfg, obs, action = self.cfg, rollout.obs, rollout.action
        reward = rollout.reward
        reward = reshaped(rollout, self.explorer, cfg)  # CAE   r̃ = r + αβ, before any advantage
        if cfg.normalize_reward and cfg.normalize_bonus:
            reward = self.reward_normalizer(reward, rollout.terminated)
        with torch.no_grad():
            value, last_value = self.critic.read(phi), self.critic(last)
            final_value = self.critic(rollout.next_obs) if cfg.bootstrap_truncated else None
            out = self.actor.read(phi) if self.shared else self.actor(obs)
            log_prob = self.actor.log_prob(out, action)
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
            # Shuffled once a pass, so that minibatches are slices; their advantages normalised in one go.
            order = torch.randperm(size * cfg.minibatches, generator=self.generator).to(self.device)
            shuffled: Any = tree_map(partial(torch.index_select, dim=0, index=order), columns)
            if cfg.normalize_advantage:
                shuffled["advantage"] = normalized(shuffled["advantage"].view(-1, size)).flatten()
            for begin in range(0, len(order), size):
                chosen = slice(begin, begin + size)
                batch: Any = tree_map(itemgetter(chosen), shuffled)
                phi = self.critic.embed(batch["obs"])
                loss, losses = self.loss(phi, **batch)
                if learned:  # CAE+
                    pairs = flat.map(itemgetter(order[chosen]))  # CAE+
                    loss = loss + self.explorer.loss(pairs, phi)  # CAE+   L + L_f
                minimise(loss, self.optimizer, cfg.max_grad_norm)
        return {"loss": loss.detach()} | losses | self.compare(**columns)

    def loss(
        self,
        phi: Tensor,
        obs: Tree,
        action: Tensor,
        log_prob: Tensor,
        value: Tensor,
        target: Tensor,
        advantage: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """L = L_π + value_coef·L_V − entropy_coef·H on a minibatch [B] with its φ(s) [B, d]; and its parts."""
        cfg = self.cfg
        out = self.actor.read(phi) if self.shared else self.actor(obs)
        actor = policy_loss(self.actor.log_prob(out, action), log_prob, advantage, cfg.clip)
        critic = value_loss(self.critic.read(phi), value, target, cfg.clip if cfg.clip_value else None)
        loss = actor + cfg.value_coef * critic
        if cfg.entropy_coef:
            loss = loss - cfg.entropy_coef * self.actor.entropy(out)
        return loss, {"loss_policy": actor.detach(), "loss_value": critic.detach()}

    @torch.no_grad()
    def compare(
        self, obs: Tree, action: Tensor, log_prob: Tensor, value: Tensor, target: Tensor, advantage: Tensor
    ) -> dict[str, Tensor]:
        """How far the update moved the policy, over the whole rollout; and what the value had explained."""
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
        """Go on from there."""
        for name in self._parts:
            getattr(self, name).load_state_dict(state[name])
        self.generator.set_state(state["generator"])


Agent = PPO


def train(cfg: Config, run: Run) -> None:
    """The whole training loop."""
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    agent = PPO(cfg, envs.observation_space, envs.action_space, run.device)
    agent.see(envs.obs, learn=True)
    parts: dict[str, Any] = {"agent": agent, "optimizer": agent.optimizer, "envs": envs}
    setting = Setting(agent.embedding, agent.seen_space, cfg.num_envs, cfg.seed)  # CAE
    parts["explorer"] = agent.explorer = explorer = make_explorer(cfg, setting, rollouts=True)  # CAE
    agent.optimizer.add_param_group({"params": explorer.learned()})  # CAE+
    run.attach(**parts)

    rollout, obs = Rollout(), agent.see(envs.obs)
    per_iteration = cfg.rollout * cfg.num_envs
    total = cfg.steps // per_iteration * per_iteration
    for step in run.steps(total, per_iteration):
        with torch.no_grad():
            for noise in agent.actor.noise(cfg.rollout, cfg.num_envs, generator=agent.generator):
                action = agent.act(obs, noise)
                transition, raw = envs.step(agent.actor.to_env(action))
                restarted = raw is not transition.next_obs
                next_obs = agent.see(transition.next_obs, learn=True)
                transition.obs, transition.action, transition.next_obs = obs, action, next_obs
                rollout.add(transition)
                obs = agent.see(raw, learn=transition.ended) if restarted else next_obs
        batch, _ = rollout.stack()
        run.visits(batch)
        if cfg.normalize_reward and not cfg.normalize_bonus:
            batch.reward = agent.reward_normalizer(batch.reward, batch.terminated)
        batch = batch.to(run.device)
        with torch.no_grad():
            phi = agent.critic.embed(batch.obs)
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
