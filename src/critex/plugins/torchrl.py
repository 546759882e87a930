"""CAE and the other explorers in TorchRL: a transform for the environment, a loss for the explorers that learn.

    explore = critex.torchrl.ExplorerTransform("cae", alpha=0.2, embed=critex.last_hidden(value_net))
    env = TransformedEnv(GymEnv("CartPole-v1"), Compose(RewardSum(), explore))

Every step gets ("next", "bonus"), the scaled β, and ("next", "reward") becomes r + αβ. A `RewardSum` before the
transform still sums the extrinsic reward. After `env.eval()` there is no bonus, and nothing is remembered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from critex.data import Transition
from critex.data.transition import pairs
from critex.data.tree import Tree
from critex.embedding import Embedding, identity
from critex.errors import UserError, unknown
from critex.explorers import Elliptical, Explorer, Setting
from critex.explorers._alpha import Alpha, HasAlpha, fixed_or_auto
from critex.facade._loop import embed_of
from critex.plugins._common import build_explorer, explorer_options, require_version, without_critic
from critex.plugins._shared_gram import SharedGram

require_version("torchrl", "0.14", "torchrl")

from tensordict import TensorDict, TensorDictBase  # noqa: E402
from torchrl.data import (  # noqa: E402
    Binary,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    TensorSpec,
    Unbounded,
)
from torchrl.envs.transforms import Transform, TransformedEnv  # noqa: E402
from torchrl.objectives import LossModule  # noqa: E402

from critex.plugins._torchrl_critic import (  # noqa: E402
    Key,
    Untrained,
    adapted,
    critic_of,
    name_of,
    refuse_copy,
)

__all__ = ["ExplorerLoss", "ExplorerTransform", "critic_of"]


class ExplorerTransform(HasAlpha, Transform):  # type: ignore[misc]
    """r̃ = r + αβ in a TorchRL environment, from any explorer of critex.

    Args:
        explorer: any of critex's, such as "cae", "cae_plus", "e3b" or "rnd", or two, as in "rnd+counts".
        alpha: exploration coefficient α: a number, or "auto", which sets it from the scales of rewards and bonuses.
            Copies in several processes set their own.
        embed: φ of the critic: the critic itself, or a function `(obs) → [N, d]` or `(obs, action) → [N, d]`.
            `critic_of(loss)` is the one to give for losses that train copies of it, such as SACLoss. Explorers with their
            own encoder do not need it.
        phi_key: instead of `embed`, the entry to which the policy writes φ. Collectors in other processes then compute φ
            with their current weights.
        dim: the length of φ, if `embed` has no attribute `dim`.
        takes_action: φ takes the action. Needed only where the signature of `embed` does not tell.
        in_keys: observations, ["observation"] by default; several form a dict. Append the transform after all that
            change them.
        shared: a file through which the copies of this transform in several processes share one lifelong memory: each
            adds its `Gram.increment` and merges those of the others, every `sync_every` steps. Use a new file for
            each run.
        gamma: discount γ of your algorithm, for alpha="auto".
        options: options of the explorer, such as ridge=1.0 or scope="episodic".
    """

    def __init__(
        self,
        explorer: str = "cae",
        alpha: float | Literal["auto"] = 0.1,
        *,
        embed: Callable[..., Tensor] | None = None,
        phi_key: Key | None = None,
        dim: int | None = None,
        takes_action: bool | None = None,
        in_keys: Sequence[Key] = ("observation",),
        reward_key: Key = "reward",
        bonus_key: Key = "bonus",
        gamma: float = 0.99,
        seed: int = 0,
        shared: str | Path | None = None,
        sync_every: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__(in_keys=list(in_keys), out_keys=[bonus_key])
        if embed is not None and phi_key is not None:
            raise UserError("give embed= or phi_key=, not both")
        if isinstance(embed, nn.Module) and dim is None:  # a whole critic
            embed = embed_of(embed)
        dim = dim if dim is not None else getattr(embed, "dim", None)
        if dim is None and (embed is not None or phi_key is not None):
            raise UserError("give dim=, the length of the φ that embed or phi_key returns")
        if phi_key is not None and options.get("embedding") == "next_state":
            raise UserError("phi_key has φ(s) alone; embedding='next_state' needs embed=")
        self.name, self._alpha, self.seed = explorer, fixed_or_auto(alpha, gamma), seed
        self.options = explorer_options(explorer, options)
        # A tuple, so that the critic's parameters are not registered here.
        self._critic = (embed, dim, takes_action)
        self.reward_key, self.bonus_key, self.phi_key = reward_key, bonus_key, phi_key
        self.shared, self.sync_every, self._unsynced = shared, sync_every, 0
        self._pool: SharedGram | None = None
        self._untrained = Untrained(embed)
        self.explorer: Explorer | None = None
        self._starts: Tensor | None = None  # None: the next step begins an episode
        self._clone_in: int | None = None  # the environment whose explorer a clone has

    # Set-up, as soon as the environment is known.

    def build(self, env: Any) -> Explorer:
        """The explorer for this environment; later calls return the same."""
        if self.explorer is None:
            self._one_hot = isinstance(env.action_spec, OneHot)
            self.action_key = env.action_key
            space = _action_space(env.action_spec, len(env.batch_size))
            for key in self.in_keys:
                if key not in env.observation_spec.keys(include_nested=True):
                    raise unknown(
                        "observation of this environment", name_of(key), map(str, env.observation_spec)
                    )
            spaces = {name_of(k): _space(env.observation_spec[k], len(env.batch_size)) for k in self.in_keys}
            only = len(spaces) == 1
            observation_space = next(iter(spaces.values())) if only else gym.spaces.Dict(spaces)
            setting = Setting(
                self._embedding(space), observation_space, max(math.prod(env.batch_size), 1), self.seed
            )
            self.explorer = build_explorer(self.name, self._alpha, self.options, setting, rollouts=False)
            used = getattr(getattr(self.explorer, "embedding", None), "critic", None)
            if self.phi_key is not None and used is not setting.embedding.critic:
                raise UserError(
                    f"explorer {self.name} sees the observations, not only φ of the critic; leave out phi_key="
                )
            if self.shared is not None:
                if not isinstance(self.explorer, Elliptical) or self.explorer.episodic:
                    raise UserError(
                        "shared= needs a lifelong memory A: cae or cae_plus with scope='lifelong'"
                    )
                self._pool = SharedGram(self.shared, self.explorer.gram)
        return self.explorer

    def _embedding(self, space: gym.Space[Any]) -> Embedding:
        embed, dim, takes_action = self._critic
        if dim is None:
            return without_critic(
                space,
                f"explorer {self.name} needs φ of your critic: give embed= or phi_key=, or use one with its own "
                "encoder, such as e3b or rnd",
            )
        if embed is None:
            embed, takes_action = _given_with_action if takes_action else identity, bool(takes_action)
        else:
            refuse_copy(embed)
            embed, takes_action = adapted(embed, takes_action, self.in_keys, self.action_key)
        return Embedding.of(embed, dim, space, takes_action=takes_action)

    def set_container(self, container: Any) -> None:
        super().set_container(container)
        if self.parent is None:
            return
        if self._clone_in not in (None, id(_innermost(self.parent))):
            self.explorer, self._pool, self._starts = None, None, None
            self._alpha = Alpha(self._alpha.rule or self._alpha.value, self._alpha.gamma)
        self._clone_in = None
        self.build(self.parent)

    def clone(self) -> ExplorerTransform:
        """A transform for another environment, where it begins with an empty memory.

        TorchRL also rebuilds an environment with clones of its transforms; there they keep the memory.
        """
        clone: ExplorerTransform = super().clone()
        if self.container is not None:
            clone._clone_in = id(_innermost(self.container))
        return clone

    def train(self, mode: bool = True) -> ExplorerTransform:
        """`env.eval()` stops bonus and memory until `env.train()`."""
        # TorchRL also calls eval() on every transform that it attaches, before the environment has it.
        env = self.container
        attached = env is not None and env.transform is not None and self in env.transform.modules()
        super().train(mode or not attached)
        return self

    # Specs: the bonus is listed with the observations, as RewardSum's entries are; the reward loses its bounds.

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        reward = self.parent.full_reward_spec[self.reward_key]
        observation_spec[self.bonus_key] = Unbounded(
            shape=reward.shape, dtype=reward.dtype, device=reward.device
        )
        return observation_spec

    def transform_reward_spec(self, reward_spec: TensorSpec) -> TensorSpec:
        spec = reward_spec[self.reward_key] if isinstance(reward_spec, Composite) else reward_spec
        free = Unbounded(shape=spec.shape, dtype=spec.dtype, device=spec.device)
        if isinstance(reward_spec, Composite):
            reward_spec[self.reward_key] = free
            return reward_spec
        return free

    # Stepping.

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        self._require_last()
        zero = self.parent.full_reward_spec[self.reward_key].zero()
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if self._starts is None or mask is None:
            self._starts = torch.ones(zero.numel(), dtype=torch.bool)
            tensordict_reset.set(self.bonus_key, zero)
        else:
            flat = mask.reshape(-1).cpu()
            self._starts = self._starts | flat
            old = tensordict.get(self.bonus_key, zero)
            tensordict_reset.set(self.bonus_key, torch.where(mask.reshape(old.shape), zero, old))
        return tensordict_reset

    _reset_on_native_autoreset = _reset

    @torch.no_grad()
    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        reward = next_tensordict.get(self.reward_key)
        if not self.training:
            self._starts = None
            return next_tensordict.set(self.bonus_key, torch.zeros_like(reward))
        explorer = self.build(self.parent)
        n = reward.numel()
        starts = torch.ones(n, dtype=torch.bool) if self._starts is None else self._starts
        terminated, truncated = (
            next_tensordict.get(key, torch.zeros(n, dtype=torch.bool)).reshape(n)
            for key in ("terminated", "truncated")
        )
        batch = len(tensordict.batch_size)
        step = Transition(
            obs=self._obs(tensordict, n, batch, phi=True),
            action=self._action(tensordict, n, batch),
            reward=torch.zeros(n, device=reward.device),
            next_obs=self._obs(next_tensordict, n, batch),
            terminated=terminated,
            truncated=truncated,
            episode_start=starts.to(reward.device),
        )
        bonus = explorer.bonus(step).to(reward).reshape(reward.shape)
        self._untrained.step()
        self._starts = torch.zeros(n, dtype=torch.bool)
        next_tensordict.set(self.bonus_key, bonus)
        alpha = self._alpha.observe(reward.reshape(n), bonus.reshape(n), starts)
        next_tensordict.set(self.reward_key, reward + alpha * bonus)
        if self._pool is not None:
            self._unsynced += n
            if self._unsynced >= self.sync_every:
                self.sync()
        return next_tensordict

    def _require_last(self) -> None:
        """A later transform of the observations would change s, but not the s' that this one has seen."""
        transforms = [t for t in self.container.transform.modules() if isinstance(t, Transform)]
        for later in transforms[transforms.index(self) + 1 :]:
            if self.phi_key is None and set(later.out_keys) & set(self.in_keys):
                raise UserError(
                    f"{type(later).__name__} changes the observations after ExplorerTransform; append ExplorerTransform last"
                )

    def sync(self) -> None:
        """Share this memory's increment with the other processes, and merge theirs."""
        if self._pool is not None:
            self._pool.exchange()
        self._unsynced = 0

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        raise UserError(
            "a bonus belongs to the moment of the step; put ExplorerTransform into the environment (TransformedEnv), "
            "and the replay buffer stores its reward and bonus"
        )

    def _obs(self, td: TensorDictBase, n: int, batch: int, phi: bool = False) -> Tree:
        if phi and self.phi_key is not None:
            if (given := td.get(self.phi_key, None)) is None:
                raise UserError(
                    f"the step has no {name_of(self.phi_key)}: phi_key needs a policy that writes it"
                )
            return given.reshape(n, -1)  # type: ignore[no-any-return]
        entries = {name_of(k): td.get(k).reshape(n, *td.get(k).shape[batch:]) for k in self.in_keys}
        return next(iter(entries.values())) if len(entries) == 1 else entries

    def _action(self, td: TensorDictBase, n: int, batch: int) -> Tensor:
        action: Tensor = td.get(self.action_key)
        if self._one_hot:
            return action.long().argmax(-1).reshape(n)
        action = action.reshape(n, *action.shape[batch:])
        return action if action.is_floating_point() else action.reshape(n)


class ExplorerLoss(LossModule):  # type: ignore[misc]
    """The loss of an explorer that learns, "loss_explorer", on batches of transitions of any shape.

        loss = ExplorerLoss(explore)
        optimizer = torch.optim.Adam([*critic.parameters(), *loss.parameters()])
        (bellman_loss + loss(batch)["loss_explorer"]).backward()

    For CAE+ the gradient also reaches the critic through `embed`.
    """

    def __init__(self, transform: ExplorerTransform) -> None:
        super().__init__()
        if transform.explorer is None:
            raise UserError("append the ExplorerTransform to its environment first")
        if transform.phi_key is not None and transform.name == "cae_plus":
            raise UserError(
                "the loss of cae_plus needs φ(s) and φ(s') with their gradient: give embed=, not phi_key="
            )
        self.explorer = transform.explorer
        self._transform = (transform,)
        self.in_keys = [*transform.in_keys, transform.action_key, *(("next", k) for k in transform.in_keys)]
        self.out_keys = ["loss_explorer"]

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """{"loss_explorer": mean loss}."""
        (transform,) = self._transform
        n, batch = tensordict.numel(), len(tensordict.batch_size)
        batch_pairs = pairs(
            transform._obs(tensordict, n, batch),
            transform._action(tensordict, n, batch),
            transform._obs(tensordict.get("next"), n, batch),
        )
        return TensorDict({"loss_explorer": self.explorer.loss(batch_pairs)}, [])


def _given_with_action(phi: Tensor, action: Tensor) -> Tensor:
    """φ(s,a) that the policy has already computed."""
    return phi


def _innermost(env: Any) -> Any:
    """The environment without its transforms."""
    while isinstance(env, TransformedEnv):
        env = env.base_env
    return env


def _space(spec: TensorSpec, batch: int) -> gym.Space[Any]:
    shape = tuple(spec.shape[batch:])
    if spec.dtype == torch.uint8:
        return gym.spaces.Box(0, 255, shape, np.uint8)
    return gym.spaces.Box(-np.inf, np.inf, shape, np.float32)


def _action_space(spec: TensorSpec, batch: int) -> gym.Space[Any]:
    if not isinstance(spec, MultiOneHot | MultiCategorical | Binary):  # subclasses of the next two
        if isinstance(spec, OneHot):
            return gym.spaces.Discrete(int(spec.shape[-1]))
        if isinstance(spec, Categorical):
            return gym.spaces.Discrete(int(spec.space.n))
        if spec.dtype.is_floating_point:
            ends = (spec.space.low, spec.space.high)  # the largest floats where there is no bound
            low, high = (end.reshape(-1, *spec.shape[batch:])[0].float().numpy(force=True) for end in ends)
            return gym.spaces.Box(low, high, dtype=np.float32)
    raise UserError(
        f"actions of {type(spec).__name__} are not supported; one-hot, categorical and float ones are"
    )
