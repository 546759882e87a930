"""Recurrent PPO, for agents with a camera: an LSTM or GRU above the trunk, and minibatches of whole sequences.

Read it from top to bottom: options, agent, loop. φ is the output of the trunk, below the core, so it depends on one
observation alone. The lines that add CAE are marked `# CAE`, those that CAE+ adds on top `# CAE+`. The defaults
are those of the paper's Habitat experiment, with the small network; losses are those of `ppo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import torch
from torch import Tensor

from critex.algorithms.agent import fitting_minibatches, require_same_spaces
from critex.algorithms.ppo import normalized, policy_loss, value_loss
from critex.data import Batch, Rollout, derive_seed, gae
from critex.data.tree import Tree, tree_leaves, tree_map
from critex.embedding import Embedding
from critex.envs import Envs
from critex.errors import UserError, require_widths
from critex.explorers import ExplorationConfig, clip_reward
from critex.explorers import Setting, batch_bonus, make_explorer  # CAE
from critex.networks import Adam, minimise
from critex.networks.visual import Kind, Memory, RecurrentActorCritic
from critex.ranges import Count, NonNegative, Positive, Probability
from critex.run import Run, RunConfig


@dataclass(kw_only=True)
class Config(ExplorationConfig, RunConfig):
    """Options of recurrent PPO."""

    env: str = "VizdoomExplore-train-v0"
    """Id of the environment; its actions must be discrete."""
    eval_env: str = ""
    """Id of the environment for evaluations, such as VizdoomExplore-test-v0 (empty: the same)."""
    steps: Count = 1_000_000
    """Total environment steps, rounded down to whole rollouts."""
    num_envs: Count = 8
    """Environments stepped side by side."""

    network: Kind = "compact"
    """Trunk: compact (convolutions for any observation), or resnet18 or resnet50 (rgb, depth, gps, compass)."""
    core: Literal["lstm", "gru"] = "lstm"
    """Recurrent core."""
    core_layers: Count = 1
    """Layers of the recurrent core."""
    core_width: Count = 256
    """Width of the recurrent core."""
    hidden: tuple[Count, ...] = (256,)
    """Widths of the compact trunk's layers above its encoder; the last one is φ."""

    rollout: Count = 128
    """Steps of each environment between two updates: the length of the sequences."""
    epochs: Count = 4
    """Epochs (passes over the rollout) per update."""
    minibatches: Count = 2
    """Minibatches (gradient steps) per epoch; each has the whole sequences of num_envs / minibatches environments."""
    learning_rate: NonNegative = 2.5e-4
    """Learning rate of Adam."""
    anneal: bool = False
    """Anneal the learning rate linearly to zero over the run."""
    gamma: Probability = 0.99
    """Discount γ."""
    gae_lambda: Probability = 0.95
    """λ of generalised advantage estimation."""
    clip: Positive = 0.2
    """ε of the clipped objective: it gains nothing from a ratio of probabilities beyond 1 ± ε."""
    clip_value: bool = True
    """Also clip the change of the value estimates to ± `clip`."""
    value_coef: NonNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: NonNegative = 0.01
    """Weight of the policy's entropy."""
    max_grad_norm: Positive = 0.2
    """Clip the gradient norm of the network to this, and that of the explorer's parameters separately."""
    normalize_advantage: bool = False
    """Normalise the advantages of each minibatch to mean 0 and standard deviation 1."""
    sample_actions: bool = True
    """Evaluate with actions sampled from the policy, as in the paper's Habitat runs, instead of the most likely
    ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_widths(hidden=self.hidden)
        if self.bonus_in == "value" or self.recompute:
            raise UserError("ppo_recurrent takes bonus_in=reward without recompute")
        if self.num_envs % self.minibatches:
            fit = fitting_minibatches(self.minibatches, self.num_envs)
            raise UserError(
                f"{self.num_envs} environments do not split into {self.minibatches} equal minibatches of whole "
                f"sequences; --minibatches {fit} would"
            )
        if self.normalize_advantage and self.rollout * self.num_envs == self.minibatches:
            raise UserError("advantages of one step cannot be normalised; use --rollout 2 or --minibatches 1")
        if self.steps < self.rollout * self.num_envs:
            raise UserError(
                f"{self.steps} steps are less than one rollout of {self.rollout * self.num_envs}; use more --steps "
                "or a shorter --rollout"
            )


class RecurrentPPO:
    """The agent: acts with a recurrent state per environment, learns from sequences."""

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
    ) -> None:
        if not isinstance(action_space, gym.spaces.Discrete):
            raise UserError(
                f"ppo_recurrent needs discrete actions, {cfg.env} has {action_space}; use ppo, sac, td3 or dsac"
            )
        self.cfg, self.device, self.actions = cfg, device, int(action_space.n)
        self.net = RecurrentActorCritic(
            observation_space,
            self.actions,
            cfg.network,
            cfg.core,
            cfg.core_layers,
            cfg.core_width,
            cfg.hidden,
        ).to(device)
        self.weights = list(self.net.parameters())
        self.optimizer = Adam(self.weights, lr=cfg.learning_rate, eps=1e-5)
        self.generator = torch.Generator().manual_seed(derive_seed(cfg.seed, "policy"))
        self.memory = self.net.memory(cfg.num_envs)
        self.previous = torch.zeros(cfg.num_envs, dtype=torch.int64, device=device)  # 0: an episode begins
        self.embedding = Embedding.of(self.net.embed, self.net.trunk.dim, action_space, takes_action=False)
        setting = Setting(self.embedding, observation_space, cfg.num_envs, cfg.seed)  # CAE
        self.explorer = make_explorer(cfg, setting, rollouts=True)  # CAE
        self.optimizer.add_param_group({"params": self.explorer.learned()})  # CAE+

    def see(self, obs: Tree) -> Tree:
        """Observations on the device of the network."""
        return tree_map(lambda x: x.to(self.device), obs)

    @torch.no_grad()
    def look(self, obs: Tree, previous: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Tensor, Memory]:
        """(φ [N, d], logits [N, A], values [N], memory after) of one vector step."""
        phi = self.net.embed(self.see(obs))
        start = torch.zeros(1, len(phi), dtype=torch.bool, device=self.device)
        logits, value, memory = self.net.unroll(phi[None], previous[None], start, memory)
        return phi, logits[0], value[0], memory

    def act(self, obs: Tree) -> dict[str, Tensor]:
        """Sample actions [N] and advance the memory; return the columns that the update needs."""
        phi, logits, value, self.memory = self.look(obs, self.previous, self.memory)
        noise = -torch.empty(logits.shape).exponential_(generator=self.generator).log()  # Gumbel
        action = (logits + noise.to(self.device)).argmax(-1)
        columns = {"action": action, "previous": self.previous, "phi": phi, "value": value}
        self.previous = action + 1
        return columns | {"log_prob": log_prob_of(logits, action)}

    def forget(self, ended: Tensor) -> None:
        """Reset the memory of the environments whose episode ended, [N]."""
        self.memory, self.previous = forgotten(self.memory, self.previous, ended)

    def update(
        self, rollout: Batch, columns: dict[str, Tensor], begin: Memory, last_value: Tensor
    ) -> dict[str, Any]:
        """Learn from a rollout [T, N] with the columns from `act`; `begin` is the memory before its first step."""
        cfg, reward = self.cfg, rollout.reward
        bonus = batch_bonus(rollout, self.explorer, cfg)  # CAE
        alpha = self.explorer.alpha.observe(reward, bonus, rollout.episode_start)  # CAE
        reward = reward + alpha * bonus  # CAE   r̃ = r + αβ
        reward = clip_reward(reward, cfg)
        columns["advantage"], columns["target"] = gae(
            reward, columns["value"], last_value, rollout.terminated, rollout.truncated,
            gamma=cfg.gamma, lam=cfg.gae_lambda,
        )  # fmt: skip
        columns["start"] = rollout.episode_start
        self.net.trunk.learn(rollout.obs)
        pairs = self.explorer.prepare(rollout)  # CAE+
        learned = self.explorer.learned()  # CAE+
        for _ in range(cfg.epochs):
            order = torch.randperm(cfg.num_envs, generator=self.generator).to(self.device)
            for envs in order.chunk(cfg.minibatches):  # whole sequences, [T, n]
                batch = {name: column[:, envs] for name, column in columns.items()}
                phi = self.net.embed(tree_map(lambda x, envs=envs: x[:, envs], rollout.obs))
                loss, losses = self.loss(phi, batch, tuple(part[:, envs] for part in begin))
                if learned:  # CAE+
                    chosen = pairs.map(lambda x, envs=envs: x[:, envs].flatten(0, 1))  # CAE+
                    loss = loss + self.explorer.loss(chosen, phi.flatten(0, 1))  # CAE+   L + L_f
                minimise(loss, self.optimizer, cfg.max_grad_norm)
        value, target = columns["value"], columns["target"]
        explained = 1 - (target - value).var() / target.var()
        return {"loss": loss.detach(), **losses, "explained_variance": explained, "value": value.mean()}

    def loss(self, phi: Tensor, batch: dict[str, Tensor], begin: Memory) -> tuple[Tensor, dict[str, Tensor]]:
        """L = L_π + value_coef·L_V − entropy_coef·H on sequences [T, n] with their φ(s) [T, n, d]; and its parts."""
        cfg = self.cfg
        logits, value, _ = self.net.unroll(phi, batch["previous"], batch["start"], begin)
        log_prob = log_prob_of(logits, batch["action"])
        advantage = batch["advantage"]
        if cfg.normalize_advantage:
            advantage = normalized(advantage.flatten()).view_as(advantage)
        actor = policy_loss(log_prob, batch["log_prob"], advantage, cfg.clip)
        critic = value_loss(value, batch["value"], batch["target"], cfg.clip if cfg.clip_value else None)
        log_p = logits.log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1).mean()
        log_ratio = (log_prob - batch["log_prob"]).detach()
        parts = {
            "loss_policy": actor.detach(),
            "loss_value": critic.detach(),
            "entropy": entropy.detach(),
            "kl": (log_ratio.exp() - 1 - log_ratio).mean(),
        }
        return actor + cfg.value_coef * critic - cfg.entropy_coef * entropy, parts

    @property
    def policy(self) -> Player:
        """A policy for evaluation, with its own, empty memory."""
        return Player(self)

    def state_dict(self) -> dict[str, Any]:
        """Network, generator, and the memory of the current episodes."""
        return {
            "net": self.net.state_dict(),
            "generator": self.generator.get_state(),
            "memory": [part.clone() for part in self.memory],
            "previous": self.previous.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.net.load_state_dict(state["net"])
        self.generator.set_state(state["generator"])
        self.memory = tuple(part.to(self.device) for part in state["memory"])
        self.previous = state["previous"].to(self.device)


Agent = RecurrentPPO


def log_prob_of(logits: Tensor, action: Tensor) -> Tensor:
    """log π(a|s), [...]."""
    return logits.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)


def forgotten(memory: Memory, previous: Tensor, ended: Tensor) -> tuple[Memory, Tensor]:
    """The memory and the previous actions, zero for the environments whose episode ended, [N]."""
    kept = ~ended.to(previous.device)
    return tuple(part * kept[:, None] for part in memory), previous * kept


class Player:
    """A recurrent policy: call it with the observations [N, …] of each step, and `restart` it when episodes end."""

    def __init__(self, agent: RecurrentPPO) -> None:
        self.agent = agent
        self.memory: Memory | None = None
        self.previous = torch.zeros(0, dtype=torch.int64)

    def __call__(self, obs: Tree) -> Tensor:
        """Actions [N]: sampled from the policy with `sample_actions`, else the most likely ones."""
        agent = self.agent
        if self.memory is None:
            n = len(tree_leaves(obs)[0])
            self.memory = agent.net.memory(n)
            self.previous = torch.zeros(n, dtype=torch.int64, device=agent.device)
        _, logits, _, self.memory = agent.look(obs, self.previous, self.memory)
        if agent.cfg.sample_actions:
            action = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
        else:
            action = logits.argmax(-1)
        self.previous = action + 1
        return action.cpu()

    def restart(self, ended: Tensor) -> None:
        """Reset the memory of the environments whose episode ended, [N]."""
        if self.memory is not None:
            self.memory, self.previous = forgotten(self.memory, self.previous, ended)


def train(cfg: Config, run: Run) -> None:
    """The whole training loop."""
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    if cfg.eval_env:
        require_same_spaces(envs, cfg.eval_env)
    agent = RecurrentPPO(cfg, envs.observation_space, envs.action_space, run.device)
    agent.net.trunk.learn(agent.see(envs.obs))
    parts: dict[str, Any] = {"agent": agent, "optimizer": agent.optimizer, "envs": envs}
    parts["explorer"] = explorer = agent.explorer  # CAE
    run.attach(**parts)
    agent.forget(envs.starting)  # a resumed episode that could not be replayed begins anew

    rollout, obs = Rollout(), envs.obs
    per_iteration = cfg.rollout * cfg.num_envs
    total = cfg.steps // per_iteration * per_iteration
    for step in run.steps(total, per_iteration):
        begin = agent.memory
        for _ in range(cfg.rollout):
            columns = agent.act(obs)
            transition, obs = envs.step(columns["action"].cpu())
            agent.forget(transition.ended)
            rollout.add(transition, **columns)
        batch, columns = rollout.stack()
        run.visits(batch)
        batch = batch.to(run.device)
        last_value = agent.look(obs, agent.previous, agent.memory)[2]
        phi = columns.pop("phi")
        batch.bonus = explorer.bonus_rollout(batch, phi)  # CAE   scaled β; then A ← A + φφᵀ
        run.episodes(envs.pop_episodes())

        if cfg.anneal:
            for group in agent.optimizer.param_groups:
                group["lr"] = cfg.learning_rate * (1 - step / total)
        losses = agent.update(batch, columns, begin, last_value)
        if run.due():
            losses |= explorer.metrics()  # CAE
            run.log(losses)
        run.evaluate(agent.policy, partial(Envs, cfg.eval_env or cfg.env))

    card: dict[str, Any] = {"parameters": sum(p.numel() for p in agent.weights)}
    card |= explorer.card()  # CAE
    run.finish(card)
