"""CAE and the other explorers in RLlib's new API stack, in one line.

    config = critex.rllib.explore(PPOConfig().environment("CartPole-v1"), "cae", alpha=0.2)

The explorer lives in RLlib's Learner, which has the whole critic; env runners only have the policy. The Learner sees the
steps of all env runners, so a lifelong memory covers them all, and nothing is lost when a runner dies. An
episodic memory belongs to one episode, whichever runner plays it.

- PPO, APPO, IMPALA: the bonus is added to the rewards of new episodes before any return or advantage is computed.
- DQN, SAC: a transition enters the memory when it is replayed for the first time. Its bonus is recomputed under the
  current critic whenever it is replayed, as with `recompute` in critex's own algorithms.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critex.data import Transition
from critex.data.tree import tree_map
from critex.errors import UserError
from critex.explorers import Elliptical, Setting
from critex.explorers._alpha import HasAlpha, fixed_or_auto
from critex.plugins._common import (
    JointTraining,
    build_explorer,
    explorer_options,
    from_bytes,
    require_version,
    to_bytes,
    to_tensors,
)

require_version("ray", "2.60", "rllib")

try:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
except ImportError as error:  # `pip install ray` brings RLlib's code without what it needs
    raise UserError(f'Ray is installed without RLlib ({error}); pip install "critex[rllib]"') from error
from ray.rllib.connectors.connector_v2 import ConnectorV2  # noqa: E402

from critex.plugins._rllib_checks import REPLAY, check, learner_of  # noqa: E402
from critex.plugins._rllib_critic import CriticTrunk  # noqa: E402
from critex.plugins._rllib_replay import name_sources, source_of  # noqa: E402

MOST_UNFINISHED = 1024  # episodic memories to keep; those of a dead runner are never needed again

Array = NDArray[np.float64]


def explore(config: Any, explorer: str = "cae", alpha: float | Literal["auto"] = 0.1, **options: Any) -> Any:
    """The same config, whose Learner adds αβ to the reward.

    Args:
        config: an `AlgorithmConfig` of PPO, APPO, IMPALA, DQN or SAC on the new API stack, otherwise complete.
        explorer: any of critex's, such as "cae", "cae_plus", "e3b" or "rnd", or two, as in "rnd+counts".
        alpha: exploration coefficient α: a number, or "auto" (PPO, APPO and IMPALA), which sets it from the scales of
            rewards and bonuses.
        options: options of the explorer, such as ridge=1.0 or scope="episodic".
    """
    if not isinstance(config, AlgorithmConfig):
        raise UserError(f"explore takes an AlgorithmConfig of RLlib, got {type(config).__name__}")
    base = learner_of(config)
    check(config, base, explorer, explorer_options(explorer, options), fixed_or_auto(alpha).rule)
    learner = base  # it has the explorer already if `explore` is called again
    if not issubclass(base, ExplorerLearner):
        learner = type(f"Explorer{base.__name__}", (ExplorerLearner, base), {"__module__": __name__})
    if issubclass(base, REPLAY):
        others: Any = config.callbacks_on_algorithm_init or []
        others = [others] if callable(others) else [call for call in others if call is not name_sources]
        config.callbacks(on_algorithm_init=[*others, name_sources])
    ours = {"explorer": explorer, "alpha": alpha, "options": dict(options)}
    return config.learners(
        learner_class=learner, learner_config_dict=config.learner_config_dict | {"critex": ours}
    )


class ExplorerLearner:
    """Mixin that `explore` adds to an RLlib Learner: the connector that adds the bonus, and its state in checkpoints."""

    bonus_connector: BonusConnector

    def build(self) -> None:
        super().build()  # type: ignore[misc]
        learner: Any = self
        self.bonus_connector = BonusConnector(learner, **learner.config.learner_config_dict["critex"])
        learner._learner_connector.prepend(self.bonus_connector)

    def get_state(self, *args: Any, **keywords: Any) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state(*args, **keywords)  # type: ignore[misc]
        if not keywords.get("inference_only"):
            state["critex"] = self.bonus_connector.saved()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)  # type: ignore[misc]
        if "critex" in state:
            self.bonus_connector.restore(state["critex"])


class BonusConnector(HasAlpha, ConnectorV2):
    """Adds αβ to the rewards of episodes, before any other connector of the Learner's pipeline sees them."""

    def __init__(
        self, learner: Any, *, explorer: str, alpha: float | Literal["auto"], options: dict[str, Any]
    ) -> None:
        super().__init__()
        config = learner.config
        self._alpha = fixed_or_auto(alpha, config.gamma)
        self.replayed, self.num_learners = isinstance(learner, REPLAY), config.num_learners
        (module,) = (module.unwrapped() for module in learner.module.values())
        if module.is_stateful():
            raise UserError("critex.rllib needs a critic without memory; use a model without an LSTM")
        self.discrete = isinstance(module.action_space, gym.spaces.Discrete)
        critic = CriticTrunk(module)
        self.device = critic.layer.weight.device
        embedding = critic.embedding(config.normalize_actions)
        setting = Setting(embedding, module.observation_space, seed=config.seed or 0)
        self.explorer: Any = build_explorer(
            explorer, self._alpha, explorer_options(explorer, options), setting, rollouts=False
        )
        self.seen: dict[str, int] = {}
        """Replay: bit t of an episode's number is set once its step t is in the memory."""
        self.unfinished: OrderedDict[str, dict[str, Tensor]] = OrderedDict()
        """The episodic memories of the episodes that still go on."""
        self.newest: Transition | None = None  # the steps of the last update, [B, …]
        self.batch_size = getattr(config, "minibatch_size", None) or config.train_batch_size_per_learner
        optimizer = _optimizer_of(critic.layer.weight, learner._named_optimizers.values())
        self.training = JointTraining(self.explorer, optimizer, self._sample, setting.own_seed())
        self.training.attach()

    def __call__(self, *, episodes: list[Any], batch: Any, metrics: Any = None, **_: Any) -> Any:
        chunks = [self._transition(episode) for episode in episodes]
        if self.replayed:
            bonuses = self._replayed(episodes, chunks)
        else:
            bonuses = [self._new(episode, chunk) for episode, chunk in zip(episodes, chunks, strict=True)]
            self._observe(episodes, chunks, bonuses)
        for episode, bonus in zip(episodes, bonuses, strict=True):
            # An array from Ray's object store may be read-only, one of a replay buffer is shared.
            if episode.is_numpy:
                episode.rewards.data = np.array(episode.rewards.data)
            rewards = np.asarray(episode.get_rewards(), dtype=np.float64) + self.alpha * bonus
            episode.set_rewards(new_data=rewards, at_indices=slice(0, len(rewards)))
        if self.num_learners > 1:
            self._merge()
        if chunks:
            self.newest = _joined(chunks)
        if metrics is not None:
            for key, value in self.explorer.metrics().items():
                metrics.log_value(("explore", key), value, window=1)
        return batch

    def _observe(self, episodes: list[Any], chunks: list[Transition], bonuses: list[Array]) -> None:
        """Show rewards and bonuses of new steps to α; one part of an episode follows another, but not at once."""
        for episode, chunk, bonus in zip(episodes, chunks, bonuses, strict=True):
            rewards = np.array(episode.get_rewards(), dtype=np.float64)  # a copy: torch wants to write
            reward, beta = (torch.from_numpy(x)[:, None] for x in (rewards, bonus))  # [T] → [T, 1]
            self._alpha.observe(reward, beta, chunk.episode_start[:, None], apart=True)

    def _transition(self, episode: Any) -> Transition:
        """The steps of an episode, or of a part of one, [T, …]."""
        steps = len(episode)
        observations = to_tensors(episode.get_observations(slice(0, steps + 1)), self.device)
        action = to_tensors(np.asarray(episode.get_actions(slice(0, steps))), self.device)
        assert isinstance(action, Tensor)
        start, terminated, truncated = torch.zeros(3, steps, dtype=torch.bool, device=self.device)
        start[0] = episode.t_started == 0
        terminated[-1], truncated[-1] = bool(episode.is_terminated), bool(episode.is_truncated)
        return Transition(
            obs=tree_map(lambda x: x[:-1], observations),
            action=action.long() if self.discrete else action.reshape(steps, -1),
            reward=torch.zeros(steps, device=self.device),
            next_obs=tree_map(lambda x: x[1:], observations),
            terminated=terminated,
            truncated=truncated,
            episode_start=start,
        )

    def _new(self, episode: Any, chunk: Transition) -> Array:
        """Scaled β [T] of new steps; the later parts of an episode resume its episodic memory."""
        explorer = self.explorer
        resume = explorer.episodic and isinstance(explorer, Elliptical)
        if resume and episode.t_started > 0:
            if memory := self.unfinished.pop(episode.id_, None):
                explorer.gram.load_state_dict(memory)
            else:
                explorer.gram.reset()
        bonus = explorer.bonus_rollout(chunk.map(lambda x: x.unsqueeze(1))).squeeze(1)  # [T, 1] → [T]
        if resume and not episode.is_done:
            self.unfinished[episode.id_] = {k: x.clone() for k, x in explorer.gram.state_dict().items()}
            if len(self.unfinished) > MOST_UNFINISHED:
                self.unfinished.popitem(last=False)
        scaled: Array = bonus.numpy(force=True).astype(np.float64)
        return scaled

    @torch.no_grad()
    def _replayed(self, episodes: list[Any], chunks: list[Transition]) -> list[Array]:
        """Scaled β [T] of replayed steps under the current critic; a step's first replay adds it to the memory."""
        if not chunks:
            return []
        steps = _joined(chunks)
        new = torch.tensor(
            [self._first_time(source_of(e), e.t_started + t) for e in episodes for t in range(len(e))]
        )
        bonus = torch.zeros(len(new), dtype=torch.float64)
        if new.any():
            bonus[new] = self.explorer.bonus(steps.map(lambda x: x[new])).double().cpu()
        if not new.all():
            old = steps.map(lambda x: x[~new])
            bonus[~new] = self.explorer.measure(old.obs, old.action, old.next_obs)[1].double().cpu()
        return [part.numpy() for part in bonus.split([len(episode) for episode in episodes])]

    def _first_time(self, episode: str, t: int) -> bool:
        seen = self.seen.get(episode, 0)
        self.seen[episode] = seen | 1 << t
        return not seen >> t & 1

    def _merge(self) -> None:
        """Add to this Learner's lifelong memory what the others have observed in the same update."""
        if not self.explorer.episodic:
            own = self.explorer.gram.increment()
            total = own.to(self.device, copy=True)
            torch.distributed.all_reduce(total)  # Σ over all Learners, in place
            others = total.to(own) - own
            self.explorer.gram.merge(0.5 * (others + others.mT))

    def _sample(self, generator: torch.Generator) -> Transition | None:
        """A minibatch of the newest steps, for the explorer's loss."""
        steps = self.newest
        if steps is None:
            return None
        rows = torch.randint(len(steps), (min(self.batch_size, len(steps)),), generator=generator)
        return steps.map(lambda x: x[rows.to(x.device)])

    def saved(self) -> dict[str, Any]:
        """The state as bytes that torch loads with weights_only; unfinished episodes end with the env runners."""
        state = {
            "explorer": self.explorer.state_dict(),
            "seen": {episode: hex(steps) for episode, steps in self.seen.items()},
            "training": self.training.state_dict(),
        }
        return {"state": to_bytes(state)}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what `saved` returned."""
        state = from_bytes(saved["state"])
        self.explorer.load_state_dict(state["explorer"])
        self.seen = {episode: int(steps, 16) for episode, steps in state["seen"].items()}
        self.training.load_state_dict(state["training"])


def _joined(chunks: list[Transition]) -> Transition:
    first, *others = chunks
    return first.map(lambda *leaves: torch.cat(leaves), *others)


def _optimizer_of(weight: Tensor, optimizers: Iterable[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    return next(
        o for o in optimizers if any(p is weight for group in o.param_groups for p in group["params"])
    )
