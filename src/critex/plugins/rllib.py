"""CAE and the other explorers in RLlib's new API stack, in one line.

    config = critex.rllib.explore(PPOConfig().environment("CartPole-v1"), "cae", alpha=0.2)

The explorer lives in RLlib's Learner, which has the whole critic: env runners only have the policy. So all env runners
share one memory, nothing is lost when a runner dies, and RLlib's checkpoints include the memory.

- PPO, APPO, IMPALA: the bonus of fresh episodes is added to their rewards before any return or advantage is computed.
- DQN, SAC: a transition enters the memory when it is replayed for the first time. Its bonus is recomputed under the
  current critic whenever it is replayed, as with `recompute` in critex's own algorithms.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding, last_hidden
from critex.errors import UserError
from critex.explorers import Explorer, Setting, explorer_class
from critex.plugins._common import (
    build_explorer,
    explorer_options,
    from_bytes,
    require_version,
    to_bytes,
    to_tensors,
)

require_version("ray", "2.60", "rllib")

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig  # noqa: E402
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner  # noqa: E402
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner  # noqa: E402
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner  # noqa: E402
from ray.rllib.connectors.connector_v2 import ConnectorV2  # noqa: E402
from ray.rllib.core.columns import Columns  # noqa: E402

ROLLOUTS = (PPOTorchLearner, IMPALATorchLearner)  # APPO's learner is one of IMPALA's
REPLAY = (DQNTorchLearner,)  # and SAC's one of DQN's


def explore(config: Any, explorer: str = "cae", alpha: float = 0.1, **options: Any) -> Any:
    """The same config, whose Learner adds αβ to the reward.

    Args:
        config: an `AlgorithmConfig` of PPO, APPO, IMPALA, DQN or SAC on the new API stack, otherwise complete.
        explorer: "cae", "e3b", "rnd", "icm", "ride", "noveld", "counts", or two, as in "rnd+counts".
        alpha: exploration coefficient α.
        options: options of the explorer, such as ridge=1.0 or scope="episodic".
    """
    if not isinstance(config, AlgorithmConfig):
        raise UserError(f"explore takes an AlgorithmConfig of RLlib, got {type(config).__name__}")
    parsed = explorer_options(explorer, options)
    base = config._learner_class or config.get_default_learner_class()
    if not isinstance(base, type) or not issubclass(base, ROLLOUTS + REPLAY):
        raise UserError(
            f"{type(config).__name__} is not supported; PPO, APPO, IMPALA, DQN and SAC with torch are"
        )
    if config.is_multi_agent:
        raise UserError("critex.rllib supports a single agent")
    if config.num_learners > 1:
        raise UserError(
            f"critex.rllib keeps its memory in one Learner, got num_learners={config.num_learners}"
        )
    if getattr(config, "num_aggregator_actors_per_learner", 0):
        raise UserError(
            "aggregator actors make batches before the Learner; use num_aggregator_actors_per_learner=0"
        )
    if "cae_plus" in explorer.replace("*", "+").split("+"):
        raise UserError(
            "the loss of cae_plus must join the critic's, which RLlib's Learner does not allow; use cae"
        )
    episodic = getattr(parsed, "scope", "") == "episodic" or explorer_class(explorer).episodic
    if episodic and (issubclass(base, REPLAY) or config.batch_mode != "complete_episodes"):
        raise UserError(
            'an episodic memory needs whole episodes: PPO with env_runners(batch_mode="complete_episodes"); '
            'else use scope="lifelong"'
        )
    if issubclass(base, REPLAY) and (n_step := getattr(config, "n_step", 1)) != 1:
        raise UserError(f"critex.rllib needs n_step=1, got {n_step}: the bonus belongs to one transition")
    learner = type(f"Explorer{base.__name__}", (ExplorerLearner, base), {"__module__": __name__})
    about = {"explorer": explorer, "alpha": float(alpha), "options": dict(options)}
    return config.learners(
        learner_class=learner, learner_config_dict=config.learner_config_dict | {"critex": about}
    )


class ExplorerLearner:
    """Mixin that `explore` adds to an RLlib Learner: the connector that pays the bonus, and its state in checkpoints."""

    explorer_piece: BonusConnector

    def build(self) -> None:
        super().build()  # type: ignore[misc]
        learner: Any = self
        self.explorer_piece = BonusConnector(
            learner, **learner.config.learner_config_dict["critex"], replayed=isinstance(self, REPLAY)
        )
        learner._learner_connector.prepend(self.explorer_piece)

    def get_state(self, *args: Any, **keywords: Any) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state(*args, **keywords)  # type: ignore[misc]
        if not keywords.get("inference_only"):
            state["critex"] = self.explorer_piece.saved()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)  # type: ignore[misc]
        if "critex" in state:
            self.explorer_piece.restore(state["critex"])


class BonusConnector(ConnectorV2):
    """Adds αβ to the rewards of episodes, before any other connector of the Learner's pipeline sees them."""

    def __init__(
        self, learner: Any, *, explorer: str, alpha: float, options: dict[str, Any], replayed: bool
    ) -> None:
        super().__init__()
        self.alpha, self.replayed = alpha, replayed
        (self.module,) = (module.unwrapped() for module in learner.module.values())
        if self.module.is_stateful():
            raise UserError("critex.rllib needs a critic without memory; use a model without an LSTM")
        embedding = critic_embedding(self.module)
        seed = learner.config.seed or 0
        setting = Setting(embedding, self.module.observation_space, 1, seed)
        self.explorer: Explorer = build_explorer(
            explorer, explorer_options(explorer, options), setting, rollouts=not replayed
        )
        learned = self.explorer.learned()
        self.optimizer = torch.optim.Adam(learned, lr=float(_learning_rate(learner))) if learned else None
        self.seen: set[tuple[str, int]] = set()  # (episode, t) of the replayed transitions in the memory
        self.discrete = isinstance(self.module.action_space, gym.spaces.Discrete)

    def __call__(self, *, episodes: list[Any], batch: Any, metrics: Any = None, **_: Any) -> Any:
        transitions = [self._transition(episode) for episode in episodes]
        pay = self._pay_replayed if self.replayed else self._pay_fresh
        for episode, bonus in zip(episodes, pay(episodes, transitions), strict=True):
            if episode.is_numpy:  # an array from Ray's object store may be read-only
                episode.rewards.data = np.array(episode.rewards.data)
            rewards = np.asarray(episode.get_rewards(), dtype=np.float64) + self.alpha * bonus
            episode.set_rewards(new_data=rewards, at_indices=slice(0, len(rewards)))
        if self.optimizer is not None:
            self._learn(transitions)
        if metrics is not None:
            for key, value in self.explorer.metrics().items():
                metrics.log_value(("explore", key), value, window=1)
        return batch

    def _transition(self, episode: Any) -> Transition:
        """The steps of an episode chunk, [T, …]."""
        observations = episode.get_observations(slice(0, len(episode) + 1))
        steps = len(episode)
        all_obs = to_tensors(observations, self.explorer_device)
        action = to_tensors(np.asarray(episode.get_actions(slice(0, steps))), self.explorer_device)
        assert isinstance(action, Tensor)
        start, terminated, truncated = torch.zeros(3, steps, dtype=torch.bool, device=self.explorer_device)
        start[0] = bool(episode.t_started == 0)
        terminated[-1], truncated[-1] = bool(episode.is_terminated), bool(episode.is_truncated)
        return Transition(
            obs=tree_map(lambda x: x[:-1], all_obs),
            action=action.long() if self.discrete else action.reshape(steps, -1),
            reward=torch.zeros(steps, device=self.explorer_device),
            next_obs=tree_map(lambda x: x[1:], all_obs),
            terminated=terminated,
            truncated=truncated,
            episode_start=start,
        )

    @property
    def explorer_device(self) -> torch.device:
        device: torch.device = next(self.module.parameters()).device
        return device

    def _pay_fresh(self, episodes: list[Any], transitions: list[Transition]) -> list[Any]:
        """Scaled β [T] of each chunk; one after the other, as rollouts of one env."""
        rollouts = (steps.map(lambda x: x.unsqueeze(1)) for steps in transitions)  # [T, 1, …]
        return [self.explorer.bonus_rollout(rollout).squeeze(1).numpy(force=True) for rollout in rollouts]

    @torch.no_grad()
    def _pay_replayed(self, episodes: list[Any], transitions: list[Transition]) -> list[Any]:
        """Current scaled β [T] of each chunk; transitions replayed for the first time are added to the memory."""
        lengths = [len(steps) for steps in transitions]
        first, *others = transitions
        steps = first.map(lambda *leaves: torch.cat(leaves), *others)
        keys = [(e.id_, e.t_started + t) for e, n in zip(episodes, lengths, strict=True) for t in range(n)]
        new = torch.tensor(
            [i for i, key in enumerate(keys) if key not in self.seen and not self.seen.add(key)]  # type: ignore[func-returns-value]
        )
        old = torch.tensor(sorted(set(range(len(keys))) - set(new.tolist())), dtype=torch.long)
        bonus = torch.zeros(len(keys), dtype=torch.float64)
        if len(new):
            bonus[new] = self.explorer.bonus(steps.map(lambda x: x[new])).double().cpu()
        if len(old):
            again = steps.map(lambda x: x[old])
            bonus[old] = self.explorer.measure(again.obs, again.action, again.next_obs)[1].double().cpu()
        return [part.numpy() for part in bonus.split(lengths)]

    def _learn(self, transitions: list[Transition]) -> None:
        assert self.optimizer is not None
        first, *others = transitions
        steps = first.map(lambda *leaves: torch.cat(leaves), *others)
        with torch.enable_grad():
            loss = self.explorer.loss(steps)
            self.optimizer.zero_grad()
            loss.backward()
        self.optimizer.step()

    def saved(self) -> dict[str, Any]:
        """The state as plain values, and bytes that torch loads with weights_only."""
        state = {"explorer": self.explorer.state_dict(), "seen": sorted(self.seen)}
        if self.optimizer is not None:
            state["optimizer"] = self.optimizer.state_dict()
        return {"state": to_bytes(state)}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the state from `saved`."""
        state = from_bytes(saved["state"])
        self.explorer.load_state_dict(state["explorer"])
        self.seen = set(state["seen"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])


class _Forward(nn.Module):
    """A method of an RLModule as a separate module, for `last_hidden`."""

    def __init__(self, module: Any, method: str, takes_action: bool) -> None:
        super().__init__()
        self.module, self.method, self.takes_action = module, method, takes_action

    def forward(self, obs: Tree, action: Tensor | None = None) -> Any:
        batch = {Columns.OBS: obs} | ({Columns.ACTIONS: action} if self.takes_action else {})
        return getattr(self.module, self.method)(batch)


def critic_embedding(module: Any) -> Embedding:
    """φ of an RLModule's critic: the input of the last linear layer of its value or Q head."""
    takes_action = hasattr(module, "qf")
    if takes_action:
        head, method = module.qf, "compute_q_values"
    elif hasattr(module, "af"):
        head, method = module.af, "compute_q_values"
    elif hasattr(module, "vf"):
        head, method = module.vf, "compute_values"
    else:
        raise UserError(f"critex.rllib finds no critic in {type(module).__name__}")
    *_, layer = (m for m in head.modules() if isinstance(m, nn.Linear))
    embed = last_hidden(_Forward(module, method, takes_action), layer=layer)
    space = module.observation_space

    def phi(owner: Any, obs: Tree, *action: Tensor) -> Tensor:
        leaf, own = (
            (obs, space)
            if not isinstance(obs, dict)
            else next(zip(obs.values(), space.values(), strict=True))
        )
        assert isinstance(leaf, Tensor)
        shape = leaf.shape[: leaf.ndim - len(own.shape)]
        rows = tree_map(lambda x: x.reshape(shape.numel(), *x.shape[len(shape) :]), obs)
        flat: Tensor = embed(rows, *(a.reshape(shape.numel(), -1) for a in action))
        return flat.reshape(*shape, -1)

    return Embedding.of(phi.__get__(module), embed.dim, module.action_space, takes_action=takes_action)


def _learning_rate(learner: Any) -> float:
    lr = learner.config.lr
    return lr[0][1] if isinstance(lr, list) else 3e-4 if lr is None else lr
