"""CAE and the other explorers in Stable-Baselines3 and sb3-contrib, in one line.

    model.learn(100_000, callback=critex.sb3.ExplorerCallback("cae", alpha=0.2))

Where the bonus enters:

- SAC, TD3, DDPG, DQN, TQC, QR-DQN: at every step, in the reward that SB3 is about to store. With `VecNormalize`
  SB3 stores the original reward, so the bonus is added to that one and α is in the unit of the raw reward.
- PPO, A2C, RecurrentPPO: at the end of a rollout, before the critic is updated. The bonus of the whole rollout is added
  to the buffer's rewards, and SB3's own `compute_returns_and_advantage` runs on the sum.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critex.data import Transition
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.errors import UserError
from critex.explorers import Explorer, Setting
from critex.plugins._common import (
    build_explorer,
    explorer_options,
    flattened,
    from_bytes,
    pairs,
    require_version,
    to_bytes,
    to_tensors,
    without_critic,
)
from critex.plugins.audit import Record

require_version("stable-baselines3", "2.9", "sb3")

from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm  # noqa: E402
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm  # noqa: E402
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer  # noqa: E402

# φ of each kind of critic, the input of its last linear layer, as a function of the module that holds the critic.


def _phi_of_q(net: Any, obs: Tree) -> Tensor:
    """φ(s) of DQN and QR-DQN, whose last layer has one output (or quantile) per action."""
    layers = net.q_net if hasattr(net, "q_net") else net.quantile_net
    phi: Tensor = layers[:-1](net.extract_features(obs, net.features_extractor))
    return phi


def _phi_of_twin(critic: Any, obs: Tree, action: Tensor) -> Tensor:
    """φ(s,a) of SAC, TD3, DDPG and TQC: the first of the critics."""
    features = critic.extract_features(obs, critic.features_extractor)
    if critic.share_features_extractor:  # then only the actor's loss trains it
        features = features.detach()
    phi: Tensor = critic.q_networks[0][:-1](torch.cat([features, action.to(features.dtype)], dim=1))
    return phi


def _vf_features(policy: Any, obs: Tree) -> Tensor:
    features = policy.extract_features(obs)
    vf: Tensor = features if policy.share_features_extractor else features[1]
    return vf


def _phi_of_value(policy: Any, obs: Tree) -> Tensor:
    """φ(s) of PPO and A2C."""

    def embed(flat: Tree) -> Tensor:
        phi: Tensor = policy.mlp_extractor.forward_critic(_vf_features(policy, flat))
        return phi

    return flattened(embed, obs, policy.observation_space)


def _phi_of_feedforward_value(policy: Any, obs: Tree) -> Tensor:
    """φ(s) of RecurrentPPO where the critic has no LSTM."""

    def embed(flat: Tree) -> Tensor:
        phi: Tensor = policy.mlp_extractor.forward_critic(policy.critic(_vf_features(policy, flat)))
        return phi

    return flattened(embed, obs, policy.observation_space)


def _phi_before_lstm(policy: Any, obs: Tree) -> Tensor:
    """φ(s) of RecurrentPPO: the trunk below the critic's LSTM."""
    return flattened(lambda flat: _vf_features(policy, flat), obs, policy.observation_space)


def critic_embedding(model: Any) -> Embedding:
    """φ of the model's critic, chosen by the critic's structure, not by the algorithm's name."""
    policy, space = model.policy, model.action_space
    q_net = getattr(policy, "q_net", None) or getattr(policy, "quantile_net", None)
    if q_net is not None:
        layers = q_net.q_net if hasattr(q_net, "q_net") else q_net.quantile_net
        return Embedding.of(MethodType(_phi_of_q, q_net), layers[-1].in_features, space, takes_action=False)
    critic: Any = getattr(policy, "critic", None)
    if hasattr(critic, "q_networks"):
        dim = critic.q_networks[0][-1].in_features
        return Embedding.of(MethodType(_phi_of_twin, critic), dim, space, takes_action=True)
    if hasattr(policy, "lstm_actor"):
        if policy.lstm_critic is None and not policy.shared_lstm:
            phi, dim = _phi_of_feedforward_value, policy.value_net.in_features
        elif any(True for _ in policy.vf_features_extractor.parameters()):
            phi, dim = _phi_before_lstm, policy.features_dim
        else:
            return without_critic(
                space,
                "this policy has no layer below its LSTM, so its critic has no φ(s) of a single observation; give it "
                "a features extractor with layers, set policy_kwargs=dict(enable_critic_lstm=False), or take an "
                "explorer with an encoder of its own, such as e3b or rnd",
            )
        return Embedding.of(MethodType(phi, policy), dim, space, takes_action=False)
    if hasattr(policy, "mlp_extractor") and hasattr(policy, "value_net"):
        dim = policy.mlp_extractor.latent_dim_vf
        return Embedding.of(MethodType(_phi_of_value, policy), dim, space, takes_action=False)
    raise UserError(
        f"critex.sb3 finds no critic in {type(policy).__name__}; it knows DQN, SAC, TD3, DDPG, PPO and A2C, and QR-DQN, "
        "TQC and RecurrentPPO of sb3-contrib"
    )


class _Memory:
    """The explorer's state on the model, for `model.save`.

    SB3 pickles the attributes of a model. This one pickles as a plain dict that holds the output of `torch.save`, so a
    saved model loads without critex, and the state is read with `weights_only=True`.
    """

    __slots__ = ("callback",)

    def __init__(self, callback: ExplorerCallback) -> None:
        self.callback = callback

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self.callback.saved(),)


class ExplorerCallback(BaseCallback):
    """r̃ = r + αβ in any model of Stable-Baselines3, from any explorer of critex.

    Args:
        explorer: "cae", "cae_plus", "e3b", "rnd", "icm", "ride", "noveld", "counts", or two, as in "rnd+counts".
        alpha: exploration coefficient α.
        fresh: discard the memory that an earlier callback left on the model or that was saved with it.
        options: options of the explorer, such as ridge=1.0, strategy="thompson" or scope="episodic".

    Explorers that learn (all but cae and counts) take a gradient step whenever SB3's optimiser of the critic does. The
    part of the gradient that belongs to the critic's trunk (CAE+) is added to the critic's step.
    """

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
        self.explorer: Explorer | None = None
        self.bonus: NDArray[np.float64] | None = None
        """The scaled β of the last step [N] or rollout [T, N], without α."""
        self._optimizer: torch.optim.Optimizer | None = None
        self._hook: Any = None
        self.rollout: Transition | None = None
        """The last rollout [T, N] of an on-policy model, as the explorer saw it."""
        self._pairs: Transition | None = None  # its transitions [T·N], for the explorer's loss
        self._last: Any = (
            None  # the observation after our last step: if the model still has it, no env was reset
        )

    # Set-up.

    def _init_callback(self) -> None:
        model: Any = self.model
        self._on_policy = isinstance(model, OnPolicyAlgorithm)
        if not self._on_policy and not isinstance(model, OffPolicyAlgorithm):
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
        if self.explorer is None or not isinstance(earlier, _Memory) or earlier.callback is not self:
            self._build(model)
            if earlier is not None and not self.fresh:
                self._restore(earlier.callback.saved() if isinstance(earlier, _Memory) else earlier)
        model.critex = _Memory(self)
        if self._last is None or model._last_obs is not self._last:
            self._starts = np.ones(model.n_envs, dtype=bool)
        assert self.explorer is not None
        if self._optimizer is not None:
            self._hook = _critic_optimizer(model).register_step_pre_hook(self._learn)
        if not self._on_policy:
            _ensure_float_rewards(model.env.unwrapped)

    def _build(self, model: Any) -> None:
        setting = Setting(critic_embedding(model), model.observation_space, model.n_envs, model.seed or 0)
        self.explorer = build_explorer(self.name, self.options, setting, rollouts=self._on_policy)
        self._generator = torch.Generator().manual_seed(setting.own_seed())
        if learned := self.explorer.learned():
            group = _critic_optimizer(model).param_groups[0]
            self._optimizer = torch.optim.Adam(learned, lr=group["lr"], eps=group.get("eps", 1e-8))

    # Collecting.

    def _on_rollout_start(self) -> None:
        self._ends: list[
            tuple[int, int, dict[str, Any]]
        ] = []  # (t, env, info) of the steps that ended an episode

    def _on_step(self) -> bool:
        infos, dones, new_obs = self.locals["infos"], self.locals["dones"], self.locals["new_obs"]
        if self._on_policy:
            if dones.any():
                t = self.locals["n_steps"]
                self._ends += [(t, i, infos[i]) for i in np.flatnonzero(dones).tolist()]
        else:
            self._pay_step(new_obs, dones, infos)
        self._starts, self._last = dones, new_obs
        return True

    def _pay_step(self, new_obs: Any, dones: NDArray[np.bool_], infos: list[dict[str, Any]]) -> None:
        """Add αβ of one step to the reward that SB3 stores next."""
        model, explorer = self.model, self.explorer
        assert explorer is not None
        if dones.any():
            new_obs = _with_finals(new_obs, [(i, _final(infos[i])) for i in np.flatnonzero(dones).tolist()])
        device = model.device
        timeouts = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        step = Transition(
            obs=to_tensors(model._last_obs, device),
            action=_action(self.locals["buffer_actions"], model.action_space, (len(dones),), device),
            reward=torch.zeros(len(dones), device=device),
            next_obs=to_tensors(new_obs, device),
            terminated=torch.from_numpy(dones & ~timeouts).to(device),
            truncated=torch.from_numpy(dones & timeouts).to(device),
            episode_start=torch.from_numpy(self._starts).to(device),
        )
        self.bonus = explorer.bonus(step).numpy(force=True)
        paid = self.alpha * self.bonus
        normalize = model.get_vec_normalize_env()
        if normalize is not None:  # SB3 stores its original reward
            normalize.old_reward = normalize.old_reward + paid
        else:
            self.locals["rewards"] += paid  # in place: SB3 holds the same array
        if dones.any():
            self._log()

    def _on_rollout_end(self) -> None:
        if not self._on_policy:
            return
        model, explorer, buffer = self.model, self.explorer, self.locals["rollout_buffer"]
        assert explorer is not None
        shape, device = buffer.rewards.shape, model.device
        obs = _batched(buffer.observations, model.observation_space, shape)
        last = _batched(self.locals["new_obs"], model.observation_space, shape[1:])
        next_obs = tree_map(lambda x, after: torch.cat([x[1:], after[None]]), obs, last)
        terminated, truncated = torch.zeros(2, *shape, dtype=torch.bool)
        for t, i, info in self._ends:
            (truncated if info.get("TimeLimit.truncated", False) else terminated)[t, i] = True
            _write(next_obs, (t, i), _final(info))
        rollout = Transition(
            obs=obs,
            action=_action(buffer.actions, model.action_space, shape, "cpu"),
            reward=torch.zeros(shape),
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            episode_start=torch.from_numpy(buffer.episode_starts).bool(),
        ).to(device)
        self.bonus = explorer.bonus_rollout(rollout).numpy(force=True)
        buffer.rewards += (self.alpha * self.bonus).astype(buffer.rewards.dtype)
        buffer.compute_returns_and_advantage(last_values=self.locals["values"], dones=self.locals["dones"])
        self.rollout = rollout
        if self._optimizer is not None:
            self._pairs = explorer.prepare(rollout).map(lambda x: x.flatten(0, 1))
        self._log()

    def _log(self) -> None:
        assert self.explorer is not None
        for key, value in self.explorer.metrics().items():
            self.logger.record_mean(f"explore/{key}", value)

    def _on_training_end(self) -> None:
        self._unhook()

    # Learning.

    def _learn(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """One gradient step on the explorer's loss; its gradient for the critic's weights is added to the critic's step."""
        explorer, own = self.explorer, self._optimizer
        assert explorer is not None and own is not None
        batch = self._batch()
        if batch is None:
            return
        own.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"]
        own.zero_grad()
        with torch.enable_grad():
            loss = explorer.loss(batch)
            loss.backward()
        own.step()
        self.logger.record_mean("explore/loss", float(loss.detach()))

    def _batch(self) -> Transition | None:
        model: Any = self.model
        if self._on_policy:
            rollout = self._pairs
            if rollout is None:
                return None
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
        assert self.explorer is not None
        state: dict[str, Any] = {
            "explorer": self.explorer.state_dict(),
            "generator": self._generator.get_state(),
        }
        if self._optimizer is not None:
            state["optimizer"] = self._optimizer.state_dict()
        about = {"explorer": self.name, "options": repr(self.options), "num_envs": self.model.n_envs}
        return {**about, "state": to_bytes(state)}

    def _restore(self, saved: dict[str, Any]) -> None:
        assert self.explorer is not None
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


class AuditCallback(BaseCallback):
    """Collects what `critex.audit` needs from a model with an `ExplorerCallback`; place it after that callback.

    watch = critex.sb3.AuditCallback(explorer)
    model.learn(10_000, callback=[explorer, watch])
    print(critex.audit.audit(watch.record(), recorders))
    """

    def __init__(self, explorer: ExplorerCallback) -> None:
        super().__init__()
        self.explorer = explorer
        self._bonus: list[NDArray[np.float64]] = []
        self._record: Record | None = None

    def _on_step(self) -> bool:
        if not self.explorer._on_policy and self.explorer.bonus is not None:
            self._bonus.append(self.explorer.bonus)
        return True

    def _on_rollout_end(self) -> None:
        explorer = self.explorer
        if not explorer._on_policy or explorer.bonus is None or explorer.rollout is None:
            return
        buffer, rollout = self.locals["rollout_buffer"], explorer.rollout
        self._record = Record(
            alpha=explorer.alpha,
            bonus=explorer.bonus,
            stored_reward=buffer.rewards.copy(),
            obs=_arrays(rollout.obs),
            next_obs=_arrays(rollout.next_obs),
            ended=rollout.ended.numpy(force=True),
            returns=buffer.returns.copy(),
            values=buffer.values.copy(),
            last_values=self.locals["values"].numpy(force=True),
            gamma=buffer.gamma,
            gae_lambda=buffer.gae_lambda,
        )

    def record(self) -> Record:
        """The last rollout, or the whole replay buffer, which must not have wrapped around."""
        if self._record is not None:
            return self._record
        buffer = getattr(self.model, "replay_buffer", None)
        if buffer is None or buffer.full or not self._bonus:
            raise UserError(
                "there is nothing to audit: no rollout was finished, or the replay buffer is full"
            )
        rows = slice(0, buffer.pos)
        obs, next_obs = (
            {key: x[rows] for key, x in stored.items()} if isinstance(stored, dict) else stored[rows]
            for stored in (buffer.observations, buffer.next_observations)
        )
        return Record(
            alpha=self.explorer.alpha,
            bonus=np.stack(self._bonus)[-buffer.pos :],
            stored_reward=buffer.rewards[rows].copy(),
            obs=obs,
            next_obs=next_obs,
            ended=buffer.dones[rows].astype(bool),
        )


def _arrays(tree: Tree) -> Any:
    if isinstance(tree, dict):
        return {key: _arrays(child) for key, child in tree.items()}
    return tree.numpy(force=True)


def _critic_optimizer(model: Any) -> torch.optim.Optimizer:
    """The optimiser that trains the critic: its own, or the policy's."""
    owner: Any = model.policy
    critic = getattr(owner, "critic", None)
    optimizer = getattr(critic, "optimizer", None) or owner.optimizer
    assert isinstance(optimizer, torch.optim.Optimizer)
    return optimizer


def _ensure_float_rewards(env: Any) -> None:
    """Make rewards floats: SubprocVecEnv stacks them in their own dtype, and integers cannot hold a bonus."""
    if "step_wait" in env.__dict__:
        return
    step_wait = env.step_wait

    def float_step_wait() -> tuple[Any, ...]:
        obs, rewards, dones, infos = step_wait()
        return obs, rewards if rewards.dtype.kind == "f" else rewards.astype(np.float32), dones, infos

    env.step_wait = float_step_wait


def _final(info: dict[str, Any]) -> Any:
    if "terminal_observation" not in info:
        raise UserError(
            "an episode ended, and its info has no 'terminal_observation', which every VecEnv of SB3 gives; the "
            "observation that follows belongs to the next episode"
        )
    return info["terminal_observation"]


def _with_finals(obs: Any, finals: list[tuple[int, Any]]) -> Any:
    """A copy of observations [N, …] with the true final ones where an episode ended."""
    if isinstance(obs, dict):
        return {key: _with_finals(value, [(i, x[key]) for i, x in finals]) for key, value in obs.items()}
    copy = obs.copy()
    for i, final in finals:
        copy[i] = final
    return copy


def _write(tree: Tree, index: tuple[int, int], value: Any) -> None:
    if isinstance(tree, dict):
        for key, child in tree.items():
            _write(child, index, value[key])
    else:
        tree[index] = torch.as_tensor(np.asarray(value)).to(tree.dtype).reshape(tree[index].shape)


def _batched(obs: Any, space: gym.Space[Any], shape: tuple[int, ...]) -> Tree:
    """Arrays [T, N, …] of SB3 as tensors whose own dimensions are those of the space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: _batched(obs[key], child, shape) for key, child in space.items()}
    return to_tensors(np.asarray(obs).reshape(*shape, *(space.shape or ())))


def _action(
    actions: Any, space: gym.Space[Any], shape: tuple[int, ...], device: torch.device | str
) -> Tensor:
    """Integers [...], or vectors [..., a]."""
    tensor = to_tensors(actions, device)
    assert isinstance(tensor, Tensor)
    return (
        tensor.long().reshape(shape) if isinstance(space, gym.spaces.Discrete) else tensor.reshape(*shape, -1)
    )
