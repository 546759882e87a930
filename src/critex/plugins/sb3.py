"""CAE and the other explorers inside Stable-Baselines3 and sb3-contrib, in one line.

    model.learn(100_000, callback=critex.sb3.ExplorerCallback("cae", alpha=0.2))

SB3 alternates between collecting steps and training. When it has collected, and before it trains, the callback adds
αβ of all the new steps [T, N] to the rewards that SB3 has stored:

- SAC, TD3, DDPG, DQN, TQC, CrossQ, QR-DQN: in the replay buffer, before any batch can be drawn from it. T is
  `train_freq`. With `VecNormalize` SB3 stores the original reward, so α is in the unit of the raw reward.
- PPO, A2C, TRPO, MaskablePPO, RecurrentPPO: in the rollout buffer. Advantages and returns are linear in the rewards, so
  those that SB3 has computed get the bonus's own.

The critic does not change while SB3 collects, so one pass of it gives the same φ as a pass at every step.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from critex.data import Transition
from critex.errors import UserError
from critex.explorers import Explorer, Setting
from critex.explorers._alpha import Alpha, HasAlpha, fixed_or_auto
from critex.plugins._common import (
    JointTraining,
    build_explorer,
    explorer_options,
    from_bytes,
    require_version,
    to_bytes,
)
from critex.run.config import flat, to_dict

require_version("stable-baselines3", "2.9", "sb3")

from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm  # noqa: E402
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm  # noqa: E402
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer  # noqa: E402

from critex.plugins._sb3_audit import AuditCallback  # noqa: E402
from critex.plugins._sb3_critic import critic_embedding, critic_optimizer  # noqa: E402
from critex.plugins._sb3_steps import discounted, newest_steps, replayed_pairs, transitions  # noqa: E402

__all__ = ["AuditCallback", "ExplorerCallback", "critic_embedding"]


class ExplorerCallback(HasAlpha, BaseCallback):
    """r̃ = r + αβ in any model of Stable-Baselines3, from any explorer of critex.

    Args:
        explorer: any of critex's, such as "cae", "cae_plus", "e3b" or "rnd", or two, as in "rnd+counts".
        alpha: exploration coefficient α: a number, or "auto", which sets it from the scales of rewards and bonuses.
        layer: name of the linear layer in the critic's head whose input is φ, if the head has several at its end.
        fresh: forget the memory that an earlier callback left on the model, or that was saved with it.
        options: options of the explorer, such as ridge=1.0, strategy="thompson" or scope="episodic".

    Explorers that learn (all but cae, counts and bdqn) take a gradient step whenever SB3's critic optimiser does. The gradient
    with respect to the critic's trunk (CAE+) is added to SB3's own gradient.
    """

    explorer: Explorer
    """Built when `learn` begins."""

    def __init__(
        self,
        explorer: str = "cae",
        alpha: float | Literal["auto"] = 0.1,
        *,
        layer: str | None = None,
        fresh: bool = False,
        verbose: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(verbose)
        self.name, self._alpha, self.layer, self.fresh = explorer, fixed_or_auto(alpha), layer, fresh
        self.options = explorer_options(explorer, options)
        self.rollout: Transition | None = None
        """The steps [T, N] that SB3 collected last, as the explorer saw them."""
        self.bonus: NDArray[np.float64] | None = None
        """Their scaled β [T, N], without α."""
        self._steps = 0  # collected since SB3 trained last
        self._ends: list[tuple[int, int, dict[str, Any]]] = []  # (t, env, info) where an episode ended
        self._rewards: list[Any] = []  # of each step, before SB3 adds γV where an episode was truncated
        self._last: Any = None  # the last s'; a model that still has it continues without a reset
        self._memory: _Memory | None = None  # on the model of the last `learn`
        self._learn: Any = None  # its `start_time`, an object that each `learn` makes anew

    # Set-up.

    def _init_callback(self) -> None:
        self._refuse_parent()
        model: Any = self.model
        self.on_policy = isinstance(model, OnPolicyAlgorithm)
        if not self.on_policy and not isinstance(model, OffPolicyAlgorithm):
            raise UserError(
                f"critex.sb3 needs an on-policy or off-policy model of SB3, got {type(model).__name__}"
            )
        if isinstance(getattr(model, "replay_buffer", None), HerReplayBuffer):
            raise UserError(
                "HerReplayBuffer recomputes the rewards of relabelled transitions without the bonus; "
                "use another replay buffer"
            )
        earlier = model.__dict__.get("critex")
        if isinstance(earlier, _Memory):
            earlier.callback.training.detach()
            if earlier.callback._learn is model.start_time:
                raise UserError('learn() takes one ExplorerCallback; combine explorers as in "cae+rnd"')
        if self._memory is None or earlier is not self._memory:
            if self._memory is not None:  # another model's
                self._memory.keep()
            self._build(model)
            if earlier is not None and not self.fresh:
                self._restore(earlier.saved() if isinstance(earlier, _Memory) else earlier)
            self._memory = model.critex = _Memory(self)
        if self._last is None or model._last_obs is not self._last:
            self._starts = np.ones(model.n_envs, dtype=bool)
        self._learn = model.start_time
        self.training.attach()

    def _build(self, model: Any) -> None:
        embedding = critic_embedding(model, self.layer)
        setting = Setting(embedding, model.observation_space, model.n_envs, model.seed or 0)
        self._alpha = Alpha(self._alpha.rule or self.alpha, model.gamma)
        self.explorer = build_explorer(self.name, self._alpha, self.options, setting, rollouts=self.on_policy)
        self._num_envs, optimizer = model.n_envs, critic_optimizer(model)
        self.training = JointTraining(self.explorer, optimizer, self._sample, setting.own_seed())

    # Collecting.

    def _on_training_start(self) -> None:
        self._refuse_parent()  # a `CallbackList` inside another callback sets it after `_init_callback`

    def _refuse_parent(self) -> None:
        if self.parent is not None:
            raise UserError(
                f"{type(self.parent).__name__} passes single steps to its callback, and a bonus needs all of them; give "
                "ExplorerCallback to learn() itself, callback=[explorer, …]"
            )

    def _on_rollout_start(self) -> None:
        self._steps = 0
        self._ends.clear()
        self._rewards.clear()

    def _on_step(self) -> bool:
        dones = self.locals["dones"].tolist()
        if True in dones:
            infos, ended = self.locals["infos"], [i for i, done in enumerate(dones) if done]
            self._ends += [(self._steps, i, infos[i]) for i in ended]
            if not self.on_policy and _dumps_log(self.model, len(ended), self.locals["log_interval"]):
                self._log()
        if self.on_policy:
            self._rewards.append(self.locals["rewards"].copy())
        self._steps += 1
        return True

    def _on_rollout_end(self) -> None:
        self._last = self.locals["new_obs"]
        if self.on_policy:
            self._pay_rollout_buffer()
        else:
            self._pay_replay_buffer(self._last)
        self._steps = 0

    def _on_training_end(self) -> None:
        if self._steps:  # another callback has stopped SB3 while it collected; the last step was not stored
            self._steps -= 1
            self._ends = [end for end in self._ends if end[0] < self._steps]
            if self._steps and not self.on_policy:
                self._pay_replay_buffer(self.model._last_obs)
            self._last = None
        self.training.detach()

    def _pay_replay_buffer(self, last_obs: Any) -> None:
        model: Any = self.model
        buffer = model.replay_buffer
        obs, action, dones, rows = newest_steps(buffer, self._steps, model.get_vec_normalize_env())
        starts = np.concatenate([self._starts[None], dones[:-1]])
        self._starts = dones[-1]
        buffer.rewards[rows] += self._bonus(obs, action, buffer.rewards[rows], last_obs, starts)

    def _pay_rollout_buffer(self) -> None:
        buffer = self.locals["rollout_buffer"]
        starts = buffer.episode_starts.astype(bool)
        bonus = self._bonus(
            buffer.observations, buffer.actions, np.stack(self._rewards), self.locals["new_obs"], starts
        )
        buffer.rewards += bonus.astype(buffer.rewards.dtype)
        advantage = discounted(bonus, starts, buffer.gamma * buffer.gae_lambda)
        buffer.advantages += advantage
        buffer.returns += advantage
        if self.training.optimizer is not None:
            assert self.rollout is not None
            self._pairs = self.explorer.prepare(self.rollout).map(lambda x: x.flatten(0, 1))
        self._log()

    def _bonus(
        self, obs: Any, action: Any, reward: Any, last_obs: Any, starts: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """αβ [T, N] of the collected steps."""
        model: Any = self.model
        self.rollout = transitions(obs, action, last_obs, starts, self._ends, model)
        beta = self.explorer.bonus_rollout(self.rollout)
        alpha = self._alpha.observe(torch.from_numpy(reward), beta, self.rollout.episode_start)
        bonus: NDArray[np.float64] = beta.numpy(force=True)
        self.bonus = bonus
        return alpha * bonus

    def _log(self) -> None:
        for key, value in self.explorer.metrics().items():
            self.logger.record_mean(f"explore/{key}", value)
        if self.training.loss is not None:
            self.logger.record_mean("explore/loss", self.training.loss)

    # Learning.

    def _sample(self, generator: torch.Generator) -> Transition | None:
        """A batch for the explorer's loss: of the rollout, or of the replay buffer."""
        model: Any = self.model
        if model._last_obs is not self._last:  # a `learn` without this callback, after an interrupted one
            return None
        if not self.on_policy:
            return replayed_pairs(model, generator)
        rollout = self._pairs
        size = min(getattr(model, "batch_size", None) or len(rollout), len(rollout))
        chosen = torch.randint(len(rollout), (size,), generator=generator).to(model.device)
        return rollout.map(lambda x: x[chosen])

    # Saving: `model.save` calls `saved`.

    def saved(self) -> dict[str, Any]:
        """Which explorer this is, and its state, in plain values."""
        state = {"explorer": self.explorer.state_dict(), "training": self.training.state_dict()}
        identity = {"explorer": self.name, "options": to_dict(self.options), "num_envs": self._num_envs}
        return {**identity, "state": to_bytes(state)}

    def _restore(self, saved: dict[str, Any]) -> None:
        ours: dict[str, Any] = {"explorer": self.name}
        if self.explorer.episodic:  # one memory per env
            ours["num_envs"] = self.model.n_envs
        theirs = {key: saved[key] for key in ours}
        if saved["explorer"] == self.name:
            ours, theirs = ours | flat(to_dict(self.options)), theirs | flat(saved["options"])
        for key, value in ours.items():
            if theirs.get(key, value) != value:
                raise UserError(
                    f"the model has the memory of an explorer with {key}={theirs[key]}, this callback has {value}; "
                    "give the same, or fresh=True to start from an empty memory"
                )
        state = from_bytes(saved["state"])
        self.explorer.load_state_dict(state["explorer"])
        self.training.load_state_dict(state["training"])


class _Memory:
    """The explorer's state on the model, for `model.save`.

    SB3 pickles the attributes of a model. This one pickles as a plain dict with the state as `torch.save` writes it, so
    a saved model loads without critex, and the state is read with `weights_only=True`.
    """

    __slots__ = ("_kept", "callback")

    def __init__(self, callback: ExplorerCallback) -> None:
        self.callback = callback
        self._kept: dict[str, Any] | None = None

    def keep(self) -> None:
        """Keep the current state: the callback goes on with another model."""
        self._kept = self.saved()

    def saved(self) -> dict[str, Any]:
        """Which explorer this is, and its state, in plain values."""
        return self._kept or self.callback.saved()

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self.saved(),)


def _dumps_log(model: Any, ended: int, log_interval: int | None) -> bool:
    """Whether SB3 writes its log after this step, in which `ended` episodes ended: every `log_interval` episodes."""
    return log_interval is not None and model._episode_num % log_interval + ended >= log_interval
