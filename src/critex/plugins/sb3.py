"""CAE and the other explorers inside Stable-Baselines3 and sb3-contrib, in one line.

    model.learn(100_000, callback=critex.sb3.ExplorerCallback("cae", alpha=0.2))

SB3 alternates between collecting steps and training. When it has collected, and before it trains, the callback adds
αβ of all the new steps [T, N] to the rewards that SB3 has stored:

- SAC, TD3, DDPG, DQN, TQC, QR-DQN: in the replay buffer, before any batch can be drawn from it. T is `train_freq`. With
  `VecNormalize` SB3 stores the original reward, so α is in the unit of the raw reward.
- PPO, A2C, RecurrentPPO: in the rollout buffer, and SB3's own `compute_returns_and_advantage` runs on the sum.

The critic does not change while SB3 collects, so one pass of it gives the same φ as a pass at every step.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critex.data import Transition
from critex.data.tree import Tree, tree_map
from critex.errors import UserError
from critex.explorers import Explorer, Setting
from critex.plugins._common import (
    build_explorer,
    explorer_options,
    from_bytes,
    pairs,
    require_version,
    to_bytes,
    to_tensors,
)

require_version("stable-baselines3", "2.9", "sb3")

from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm  # noqa: E402
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm  # noqa: E402
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer  # noqa: E402

from critex.plugins._sb3_audit import AuditCallback  # noqa: E402
from critex.plugins._sb3_critic import critic_embedding  # noqa: E402

__all__ = ["AuditCallback", "ExplorerCallback", "critic_embedding"]


class ExplorerCallback(BaseCallback):
    """r̃ = r + αβ in any model of Stable-Baselines3, from any explorer of critex.

    Args:
        explorer: "cae", "cae_plus", "e3b", "rnd", "icm", "ride", "noveld", "counts", or two, as in "rnd+counts".
        alpha: exploration coefficient α.
        fresh: forget what an earlier callback left on the model, or what was saved with it.
        options: options of the explorer, such as ridge=1.0, strategy="thompson" or scope="episodic".

    Explorers that learn (all but cae and counts) descend their loss whenever SB3's optimiser of the critic takes a step,
    and the part of the gradient that belongs to the critic's trunk (CAE+) joins that step.
    """

    explorer: Explorer
    """Built when `learn` begins."""

    def __init__(
        self,
        explorer: str = "cae",
        alpha: float = 0.1,
        *,
        fresh: bool = False,
        verbose: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(verbose)
        self.name, self.alpha, self.fresh = explorer, float(alpha), fresh
        self.options = explorer_options(explorer, options)
        self.rollout: Transition | None = None
        """The steps [T, N] that SB3 collected last, as the explorer saw them."""
        self.bonus: NDArray[np.float64] | None = None
        """Their scaled β [T, N], without α."""
        self._optimizer: torch.optim.Optimizer | None = None
        self._hook: Any = None
        self._steps: list[tuple[Any, Any, Any]] = []  # (s, a, dones) of an off-policy model, [N] each
        self._ends: list[tuple[int, int, dict[str, Any]]] = []  # (t, env, info) where an episode ended
        self._last: Any = None  # the last s'; a model that still has it goes on without a reset

    # Set-up.

    def _init_callback(self) -> None:
        model: Any = self.model
        self.on_policy = isinstance(model, OnPolicyAlgorithm)
        if not self.on_policy and not isinstance(model, OffPolicyAlgorithm):
            raise UserError(
                f"critex.sb3 needs an on-policy or off-policy model of SB3, got {type(model).__name__}"
            )
        if isinstance(getattr(model, "replay_buffer", None), HerReplayBuffer):
            raise UserError(
                "HerReplayBuffer computes the rewards of relabelled transitions anew, without the bonus; "
                "use another replay buffer"
            )
        earlier = model.__dict__.get("critex")
        if isinstance(earlier, _Memory):
            earlier.callback._unhook()
        if not (isinstance(earlier, _Memory) and earlier.callback is self):
            self._build(model)
            if earlier is not None and not self.fresh:
                self._restore(earlier.callback.saved() if isinstance(earlier, _Memory) else earlier)
        model.critex = _Memory(self)
        if self._last is None or model._last_obs is not self._last:
            self._starts = np.ones(model.n_envs, dtype=bool)
        if self._optimizer is not None:
            self._hook = _critic_optimizer(model).register_step_pre_hook(self._learn)

    def _build(self, model: Any) -> None:
        setting = Setting(critic_embedding(model), model.observation_space, model.n_envs, model.seed or 0)
        self.explorer = build_explorer(self.name, self.options, setting, rollouts=self.on_policy)
        self._generator = torch.Generator().manual_seed(setting.own_seed())
        if learned := self.explorer.learned():
            group = _critic_optimizer(model).param_groups[0]
            self._optimizer = torch.optim.Adam(learned, lr=group["lr"], eps=group.get("eps", 1e-8))

    # Collecting.

    def _on_rollout_start(self) -> None:
        self._steps.clear()
        self._ends.clear()

    def _on_step(self) -> bool:
        local = self.locals
        dones, infos, self._last = local["dones"], local["infos"], local["new_obs"]
        ended = [i for i, done in enumerate(dones.tolist()) if done]
        if ended:
            t = local["n_steps"] if self.on_policy else len(self._steps)
            self._ends += [(t, i, infos[i]) for i in ended]
        if not self.on_policy:
            obs = deepcopy(self.model._last_obs)  # a VecEnv may use its memory again
            self._steps.append((obs, local["buffer_actions"], dones))
            if ended and _dumps_log(self.model, len(ended), local["log_interval"]):
                self._log()
        return True

    def _on_rollout_end(self) -> None:
        if self.on_policy:
            self._pay_rollout_buffer()
        else:
            self._pay_replay_buffer(self._last)

    def _on_training_end(self) -> None:
        if self._steps:  # another callback has stopped SB3 while it collected; the last step was not stored
            last_obs, _, _ = self._steps.pop()
            self._ends = [end for end in self._ends if end[0] < len(self._steps)]
            if self._steps:
                self._pay_replay_buffer(last_obs)
            self._last = None
        self._unhook()

    def _pay_replay_buffer(self, last_obs: Any) -> None:
        states, actions, dones = zip(*self._steps, strict=True)
        starts = np.stack([self._starts, *dones[:-1]])
        self._starts = dones[-1]
        self._steps.clear()
        bonus = self._bonus(_stacked(states), np.stack(actions), last_obs, starts)
        buffer: Any = self.locals["replay_buffer"]
        newest = bonus[-buffer.buffer_size :]
        rows = np.arange(buffer.pos - len(newest), buffer.pos)  # negative where the buffer has wrapped around
        buffer.rewards[rows] += self.alpha * newest

    def _pay_rollout_buffer(self) -> None:
        buffer = self.locals["rollout_buffer"]
        bonus = self._bonus(
            buffer.observations, buffer.actions, self.locals["new_obs"], buffer.episode_starts.astype(bool)
        )
        buffer.rewards += (self.alpha * bonus).astype(buffer.rewards.dtype)
        buffer.compute_returns_and_advantage(last_values=self.locals["values"], dones=self.locals["dones"])
        if self._optimizer is not None:
            assert self.rollout is not None
            self._pairs = self.explorer.prepare(self.rollout).map(lambda x: x.flatten(0, 1))
        self._log()

    def _bonus(self, obs: Any, action: Any, last_obs: Any, starts: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Scaled β [T, N] of the collected steps, with s' the true final observation where an episode ended."""
        model, shape = self.model, starts.shape
        states = _batched(obs, model.observation_space, shape)
        last = _batched(last_obs, model.observation_space, shape[1:])
        next_obs = tree_map(lambda x, after: torch.cat([x[1:], after[None]]), states, last)
        terminated, truncated = torch.zeros(2, *shape, dtype=torch.bool)
        for t, i, info in self._ends:
            (truncated if info.get("TimeLimit.truncated", False) else terminated)[t, i] = True
            _write(next_obs, (t, i), _final(info))
        self.rollout = Transition(
            obs=states,
            action=_actions(action, model.action_space, shape),
            reward=torch.zeros(shape),
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            episode_start=torch.from_numpy(starts),
        ).to(model.device)
        bonus: NDArray[np.float64] = self.explorer.bonus_rollout(self.rollout).numpy(force=True)
        self.bonus = bonus
        return bonus

    def _log(self) -> None:
        for key, value in self.explorer.metrics().items():
            self.logger.record_mean(f"explore/{key}", value)

    # Learning.

    def _learn(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """One step on the explorer's loss; its gradient of the critic's weights joins the step that follows."""
        own = self._optimizer
        assert own is not None
        batch = self._batch()
        own.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"]
        own.zero_grad()
        with torch.enable_grad():
            loss = self.explorer.loss(batch)
            loss.backward()
        own.step()
        self.logger.record_mean("explore/loss", float(loss.detach()))

    def _batch(self) -> Transition:
        model: Any = self.model
        if self.on_policy:
            rollout = self._pairs
            size = min(getattr(model, "batch_size", None) or len(rollout), len(rollout))
            chosen = torch.randint(len(rollout), (size,), generator=self._generator).to(model.device)
            return rollout.map(lambda x: x[chosen])
        buffer, env = model.replay_buffer, model.get_vec_normalize_env()
        if isinstance(buffer, NStepReplayBuffer):  # s' of one step, not of n
            upper = buffer.buffer_size if buffer.full else buffer.pos
            rows = torch.randint(upper, (model.batch_size,), generator=self._generator).numpy()
            sample: Any = ReplayBuffer._get_samples(buffer, rows, env)
        else:
            sample = buffer.sample(model.batch_size, env=env)
        action = sample.actions
        if isinstance(model.action_space, gym.spaces.Discrete):
            action = action.flatten()
        return pairs(sample.observations, action, sample.next_observations)

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    # Saving: `model.save` calls `saved`.

    def saved(self) -> dict[str, Any]:
        """Which explorer this is, and its state, in plain values."""
        state: dict[str, Any] = {
            "explorer": self.explorer.state_dict(),
            "generator": self._generator.get_state(),
        }
        if self._optimizer is not None:
            state["optimizer"] = self._optimizer.state_dict()
        about = {"explorer": self.name, "options": repr(self.options), "num_envs": self.model.n_envs}
        return {**about, "state": to_bytes(state)}

    def _restore(self, saved: dict[str, Any]) -> None:
        ours: dict[str, Any] = {"explorer": self.name, "options": repr(self.options)}
        if self.explorer.episodic:  # one memory per env
            ours["num_envs"] = self.model.n_envs
        for key, value in ours.items():
            if saved[key] != value:
                raise UserError(
                    f"the model has the memory of an explorer with {key}={saved[key]}, this callback has {value}; "
                    "give the same, or fresh=True to start from an empty memory"
                )
        state = from_bytes(saved["state"])
        self.explorer.load_state_dict(state["explorer"])
        self._generator.set_state(state["generator"])
        if self._optimizer is not None:
            self._optimizer.load_state_dict(state["optimizer"])


class _Memory:
    """The explorer's state on the model, for `model.save`.

    SB3 pickles the attributes of a model. This one pickles as a plain dict with the state as `torch.save` writes it, so
    a saved model loads without critex, and the state is read with `weights_only=True`.
    """

    __slots__ = ("callback",)

    def __init__(self, callback: ExplorerCallback) -> None:
        self.callback = callback

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self.callback.saved(),)


def _critic_optimizer(model: Any) -> torch.optim.Optimizer:
    """The optimiser that trains the critic: its own, or the policy's."""
    critic = getattr(model.policy, "critic", None)
    optimizer = getattr(critic, "optimizer", None) or model.policy.optimizer
    assert isinstance(optimizer, torch.optim.Optimizer)
    return optimizer


def _dumps_log(model: Any, ended: int, log_interval: int | None) -> bool:
    """Whether SB3 writes its log after this step, in which `ended` episodes ended: every `log_interval` episodes."""
    return log_interval is not None and model._episode_num % log_interval + ended >= log_interval


def _final(info: dict[str, Any]) -> Any:
    if "terminal_observation" not in info:
        raise UserError(
            "an episode ended, and its info has no 'terminal_observation', which every VecEnv of SB3 gives; the "
            "observation that follows belongs to the next episode"
        )
    return info["terminal_observation"]


def _write(tree: Tree, index: tuple[int, int], value: Any) -> None:
    if isinstance(tree, dict):
        for key, child in tree.items():
            _write(child, index, value[key])
    else:
        tree[index] = torch.as_tensor(np.asarray(value)).to(tree.dtype).reshape(tree[index].shape)


def _stacked(steps: tuple[Any, ...]) -> Any:
    """T observations [N, …] as one, [T, N, …]."""
    if isinstance(steps[0], dict):
        return {key: np.stack([step[key] for step in steps]) for key in steps[0]}
    return np.stack(steps)


def _batched(obs: Any, space: gym.Space[Any], shape: tuple[int, ...]) -> Tree:
    """Arrays of SB3 as tensors [*shape, …] whose own dimensions are those of the space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: _batched(obs[key], child, shape) for key, child in space.items()}
    return to_tensors(np.asarray(obs).reshape(*shape, *(space.shape or ())))


def _actions(actions: Any, space: gym.Space[Any], shape: tuple[int, ...]) -> Tensor:
    """Integers [...], or vectors [..., a]."""
    tensor = to_tensors(actions)
    assert isinstance(tensor, Tensor)
    discrete = isinstance(space, gym.spaces.Discrete)
    return tensor.long().reshape(shape) if discrete else tensor.reshape(*shape, -1)
