"""IMPALA (Espeholt et al., 2018) for discrete actions, with the critic as an explorer.

Read it from top to bottom: options, network, agent, worker, loop. The lines that add CAE are marked `# CAE`, those
that CAE+ adds on top `# CAE+`; without them this is plain IMPALA. Workers collect unrolls of T steps with a recurrent policy;
the learner corrects for policy lag by V-trace. The defaults are those of the paper's MiniHack runs.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Literal

import gymnasium as gym
import torch
from torch import Tensor, nn

from critex.algorithms.ray_workers import RayWorkers
from critex.data import Batch, Rollout, derive_seed, vtrace
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.envs import Envs, Episode
from critex.errors import UserError
from critex.explorers import ExplorationConfig, clip_reward
from critex.explorers import Setting, batch_bonus, make_explorer  # CAE
from critex.networks import encoder, mlp
from critex.networks.nethack import NetworkName
from critex.ranges import Count, Natural, NonNegative, Positive, Probability, Range
from critex.run import Run, RunConfig


@dataclass(kw_only=True)
class Config(ExplorationConfig, RunConfig):
    """Options of IMPALA."""

    env: str = "MiniHack-MultiRoom-N4-v0"
    """Id of the environment."""
    steps: Count = 20_000_000
    """Total environment steps, rounded down to whole unrolls."""
    num_envs: Count = 8
    """Environments per worker, stepped side by side; one unroll of all of them is a batch."""
    workers: Natural = 0
    """Worker processes started by Ray, each with `num_envs` environments. 0: collect in this process, which is
    deterministic and resumes exactly."""
    ray_address: str = ""
    """With workers: the Ray cluster to run them on, such as auto or host:6379; empty: this machine."""

    unroll: Count = 80
    """Steps of each environment between two updates."""
    learning_rate: NonNegative = 1e-4
    """Learning rate of RMSProp, and of Adam for the explorer's parameters."""
    rms_decay: Annotated[float, Range(0, below=1)] = 0.99
    """Decay of RMSProp's mean square."""
    rms_eps: Positive = 1e-5
    """ε that RMSProp adds to its root mean square."""
    anneal: bool = False
    """Anneal the learning rate linearly to zero over the run."""
    gamma: Probability = 0.99
    """Discount γ. Truncated episodes are not bootstrapped: they count as terminated."""
    rho_clip: Positive = 1.0
    """V-trace's clip ρ̄ on the importance ratios; it determines what the values converge to."""
    c_clip: NonNegative = 1.0
    """V-trace's clip c̄ on the trace coefficients; it determines how fast the values converge."""
    value_coef: NonNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: NonNegative = 0.005
    """Weight of the policy's entropy."""
    max_grad_norm: Positive = 40.0
    """Clip the gradient norm to this, for network and explorer separately."""
    network: Literal["auto", "paper", "compact"] = "auto"
    """Size of the NetHack encoder: the paper's (25 M parameters with its LSTM), or a compact one of the same
    structure (under 1 M). auto: the paper's on a GPU, else compact. Other observations use their usual encoders."""
    hidden: tuple[Count, ...] = ()
    """Widths of the layers after the encoder; the last one is φ and the width of the LSTM. Empty: one layer, 1024 with
    network=paper and 256 otherwise."""
    unused_layers: bool = False
    """Add the unused linear layer of the released code, to match the paper's number of parameters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network == "auto":
            gpu = self.device != "cpu" and torch.cuda.is_available()
            self.network = "paper" if gpu else "compact"
        if self.ray_address and not self.workers:
            raise UserError("ray_address sets where workers run; also set their number with --workers")
        if self.bonus_in == "value":
            raise UserError(
                "bonus_in=value needs actions chosen by their values; impala takes bonus_in=reward"
            )
        if self.steps < self.unroll * self.num_envs:
            raise UserError(
                f"{self.steps} steps are less than one unroll of {self.unroll} × {self.num_envs}; use more --steps or "
                "a shorter --unroll"
            )

    @property
    def nethack(self) -> NetworkName:
        """Size of every encoder of NetHack's screen: the agent's, and the explorer's if it has one."""
        return "paper" if self.network == "paper" else "compact"

    @property
    def widths(self) -> tuple[int, ...]:
        """`hidden`, or the one layer that the network has if it is empty."""
        return self.hidden or ((1024,) if self.network == "paper" else (256,))


class Network(nn.Module):
    """s → φ(s) → LSTM → π(·|s) and V(s)."""

    def __init__(self, space: gym.Space[Any], num_actions: int, cfg: Config) -> None:
        super().__init__()
        width = cfg.widths[-1]
        encode = encoder(space, cfg.nethack)
        self.trunk = nn.Sequential(encode, mlp([encode.dim, *cfg.widths]))  # φ
        self.lstm = nn.LSTM(width, width)
        self.actor = nn.Linear(width, num_actions)
        self.critic = nn.Linear(width, 1)
        if cfg.unused_layers:
            self.unused = nn.Linear(width, width, bias=False)

    def embed(self, obs: Tree) -> Tensor:
        """φ(s), [..., d]."""
        phi: Tensor = self.trunk(obs)
        return phi

    def initial_state(self, n: int) -> Tensor:
        """The LSTM's initial state, [2, n, d]."""
        return torch.zeros(2, n, self.lstm.hidden_size, device=self.critic.weight.device)

    def remember(self, phi: Tensor, start: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The LSTM over φ [T, N, d] from `state` [2, N, d]: outputs [T, N, d] and the state after them.

        The state is reset to zero where `start` [T, N] marks the first step of an episode. Steps between two such resets
        are processed in one call.
        """
        cuts = sorted({0, len(phi), *start.any(dim=1).nonzero().flatten().tolist()})
        outputs = []
        for begin, end in pairwise(cuts):
            state = state * ~start[begin, :, None]
            out, (h, c) = self.lstm(phi[begin:end], (state[:1].contiguous(), state[1:].contiguous()))
            state = torch.cat([h, c])
            outputs.append(out)
        return torch.cat(outputs), state

    def heads(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """log π(·|s) [..., A] and V(s) [...] from outputs of the LSTM [..., d]."""
        return self.actor(out).log_softmax(-1), self.critic(out).squeeze(-1)


@dataclass
class Unroll:
    """T steps of N environments, with everything the learner needs."""

    steps: Batch  # [T, N]
    last_obs: Tree  # [N, …], after the last step
    state: Tensor  # [2, N, d], of the LSTM before the first step
    log_prob: Tensor  # [T, N], log μ(a|s) of the policy that acted
    episodes: list[Episode] = field(default_factory=list)
    version: int = 0  # number of updates that the weights of μ had received


class IMPALA:
    """The agent: acts by sampling, learns from each unroll once."""

    def __init__(
        self,
        cfg: Config,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        device: torch.device,
    ) -> None:
        if not isinstance(action_space, gym.spaces.Discrete):
            raise UserError(
                f"impala needs discrete actions, {cfg.env} has {action_space}; use ppo, sac, td3 or dsac"
            )
        self.cfg, self.device = cfg, device
        self.num_actions = int(action_space.n)
        self.network = Network(observation_space, self.num_actions, cfg).to(device)
        self.optimizer = torch.optim.RMSprop(
            self.network.parameters(), lr=cfg.learning_rate, alpha=cfg.rms_decay, eps=cfg.rms_eps
        )
        self.generator = torch.Generator().manual_seed(derive_seed(cfg.seed, "policy"))
        self.updates = 0
        self.embedding = Embedding.of(self.network.embed, cfg.widths[-1], action_space, takes_action=False)
        setting = Setting(self.embedding, observation_space, cfg.num_envs, cfg.seed, cfg.nethack)  # CAE
        self.explorer = make_explorer(cfg, setting, rollouts=True)  # CAE
        learned = [{"params": self.explorer.learned()}]  # CAE+   U and the inverse dynamics
        self.explorer_optimizer = torch.optim.Adam(learned, lr=cfg.learning_rate)  # CAE+

    def see(self, obs: Tree) -> Tree:
        """Observations on the device of the network."""
        return tree_map(lambda x: x.to(self.device), obs)

    def noise(self, *shape: int) -> Tensor:
        """Gumbel noise [*shape, A], from which `act` samples actions [*shape]."""
        return -torch.empty(*shape, self.num_actions).exponential_(generator=self.generator).log()

    @torch.no_grad()
    def act(
        self, obs: Tree, start: Tensor, state: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A sample of π(·|s) [N], its log-probability [N], φ(s) [N, d], and the LSTM's state after it."""
        phi = self.network.embed(self.see(obs))
        out, state = self.network.remember(phi[None], start[None].to(self.device), state)
        log_pi, _ = self.network.heads(out[0])
        action = (log_pi + noise.to(self.device)).argmax(-1)
        return action.cpu(), log_pi.gather(-1, action[:, None]).squeeze(-1), phi, state

    @property
    def policy(self) -> Player:
        """The greedy policy for evaluation, starting with an empty memory."""
        return Player(self)

    def update(self, unroll: Unroll) -> dict[str, Any]:
        """One gradient step on L = Σ_t mean_n of −adv·log π(a|s) + value_coef·½(v − V)² − entropy_coef·H."""
        cfg, steps = self.cfg, unroll.steps.to(self.device)
        reward = steps.reward
        bonus = batch_bonus(steps, self.explorer, cfg)  # CAE
        alpha = self.explorer.alpha.observe(reward, bonus, steps.episode_start, apart=cfg.workers > 0)  # CAE
        reward = reward + alpha * bonus  # CAE   r̃ = r + αβ
        reward = clip_reward(reward, cfg)
        obs = tree_map(lambda x, last: torch.cat([x, last.to(x.device)[None]]), steps.obs, unroll.last_obs)
        start = torch.cat([steps.episode_start, steps.ended[-1:]])
        phi = self.network.embed(obs)  # [T + 1, N, d]
        out, _ = self.network.remember(phi, start, unroll.state.to(self.device))
        log_pi, value = self.network.heads(out)
        log_pi = log_pi[:-1]
        log_prob = log_pi.gather(-1, steps.action[..., None]).squeeze(-1)
        log_ratio = log_prob.detach() - unroll.log_prob.to(self.device)
        discount = cfg.gamma * ~steps.ended
        v, advantage = vtrace(
            log_ratio, discount, reward, value[:-1], value[-1], rho_clip=cfg.rho_clip, c_clip=cfg.c_clip
        )
        policy = -(advantage * log_prob).mean()
        critic = 0.5 * (v - value[:-1]).square().mean()
        entropy = -(log_pi.exp() * log_pi).sum(-1).mean()
        loss = cfg.unroll * (policy + cfg.value_coef * critic - cfg.entropy_coef * entropy)
        loss = loss + cfg.unroll * self.explorer.loss(self.explorer.prepare(steps), phi)  # CAE+   L + L_f

        self.optimizer.zero_grad()
        self.explorer_optimizer.zero_grad()  # CAE+
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), cfg.max_grad_norm)
        nn.utils.clip_grad_norm_(self.explorer.learned(), cfg.max_grad_norm)  # CAE+
        self.optimizer.step()
        self.explorer_optimizer.step()  # CAE+
        lag, self.updates = self.updates - unroll.version, self.updates + 1
        losses = {"loss": loss, "loss_policy": policy, "loss_value": critic, "entropy": entropy}
        losses |= {"value": value.mean(), "rho": log_ratio.exp().mean()}
        return {name: x.detach() for name, x in losses.items()} | {"policy_lag": lag}

    def state_dict(self) -> dict[str, Any]:
        """Network, generator and number of updates."""
        return {
            "network": self.network.state_dict(),
            "generator": self.generator.get_state(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.network.load_state_dict(state["network"])
        self.generator.set_state(state["generator"])
        self.updates = state["updates"]


Agent = IMPALA


class Player:
    """A recurrent policy: call it with the observations [N, …] of each step, and `restart` it when episodes end."""

    def __init__(self, agent: IMPALA) -> None:
        self.agent = agent
        self.state: Tensor | None = None
        self.start = torch.empty(0)

    @torch.no_grad()
    def __call__(self, obs: Tree) -> Tensor:
        """The most likely actions [N]."""
        network = self.agent.network
        phi = network.embed(self.agent.see(obs))
        if self.state is None:
            self.state, self.start = network.initial_state(len(phi)), torch.zeros(len(phi), dtype=torch.bool)
        out, self.state = network.remember(phi[None], self.start[None].to(phi.device), self.state)
        self.start = torch.zeros_like(self.start)
        return network.heads(out[0])[0].argmax(-1).cpu()

    def restart(self, ended: Tensor) -> None:
        """Reset the memory of the environments whose episode ended, [N]."""
        self.start = ended


class Worker:
    """Environments and the agent that acts in them; each call of `collect` returns the next unroll."""

    def __init__(self, cfg: Config, envs: Envs, agent: IMPALA) -> None:
        self.cfg, self.envs, self.agent = cfg, envs, agent
        self.state = agent.network.initial_state(cfg.num_envs)

    def collect(self) -> Unroll:
        """The next T steps of every environment."""
        cfg, agent, envs = self.cfg, self.agent, self.envs
        rollout, first_state, obs = Rollout(), self.state, envs.obs
        for noise in agent.noise(cfg.unroll, cfg.num_envs):
            action, log_prob, phi, self.state = agent.act(obs, envs.starting, self.state, noise)
            step, obs = envs.step(action)
            rollout.add(step, log_prob=log_prob, phi=phi)
        steps, extras = rollout.stack()
        phi = extras["phi"]
        steps.bonus = agent.explorer.bonus_rollout(steps.to(agent.device), phi)  # CAE   β; then A ← A + φφᵀ
        return Unroll(steps, obs, first_state, extras["log_prob"], envs.pop_episodes(), version=agent.updates)

    def metrics(self) -> dict[str, float]:
        """Those of the explorer since the last call."""
        metrics: dict[str, float] = {}
        metrics |= self.agent.explorer.metrics()  # CAE
        return metrics

    def card(self) -> dict[str, Any]:
        """Number of parameters, and what the explorer costs."""
        card: dict[str, Any] = {"parameters": sum(p.numel() for p in self.agent.network.parameters())}
        card |= self.agent.explorer.card()  # CAE
        return card

    def close(self) -> None:
        """Release the environments."""
        self.envs.close()

    def state_dict(self) -> dict[str, Any]:
        """The environments and the LSTM's state in them."""
        return {"envs": self.envs.state_dict(), "state": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.envs.load_state_dict(state["envs"])
        self.state = state["state"].to(self.agent.device)


def make_worker(cfg: Config, device: torch.device) -> Worker:
    """A worker with its own environments and agent."""
    envs = Envs(cfg.env, cfg.num_envs, cfg.seed, cfg.env_workers)
    return Worker(cfg, envs, IMPALA(cfg, envs.observation_space, envs.action_space, device))


def make_learner(cfg: Config, device: torch.device) -> IMPALA:
    """An agent for a learner whose workers have the environments."""
    with closing(Envs(cfg.env, 1, cfg.seed)) as envs:
        return IMPALA(cfg, envs.observation_space, envs.action_space, device)


def train(cfg: Config, run: Run) -> None:
    """The whole training loop."""
    workers = RayWorkers(cfg, make_learner(cfg, run.device)) if cfg.workers else make_worker(cfg, run.device)
    agent = workers.agent
    with closing(workers):
        parts: dict[str, Any] = {"agent": agent, "optimizer": agent.optimizer, "workers": workers}
        parts["explorer"] = agent.explorer  # CAE
        parts["explorer_optimizer"] = agent.explorer_optimizer  # CAE+
        run.attach(**parts)

        per_iteration = cfg.unroll * cfg.num_envs
        total = cfg.steps // per_iteration * per_iteration
        for step in run.steps(total, per_iteration):
            unroll = workers.collect()
            run.episodes(unroll.episodes)
            run.visits(unroll.steps)
            if cfg.anneal:
                groups = list(agent.optimizer.param_groups)
                groups += agent.explorer_optimizer.param_groups  # CAE+
                for group in groups:
                    group["lr"] = cfg.learning_rate * (1 - step / total)
            losses = agent.update(unroll)
            if run.due():
                losses |= workers.metrics()
                losses |= agent.explorer.alpha.metrics()  # CAE
                run.log(losses)
            run.evaluate(agent.policy, partial(Envs, cfg.env))
        run.finish(workers.card())
