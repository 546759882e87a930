"""CAE and CAE+ for a training loop that somebody else wrote.

explorer = critex.CAE(embed, alpha=0.2, ridge=1.0)     # embed: (obs, action) → φ
rewards = rewards + explorer(obs, actions)             # α × scaled β; then A ← A + φφᵀ
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree
from critex.embedding import Embedding, Form
from critex.errors import UserError, unknown
from critex.explorers import EXPLORERS, Elliptical, Setting, preset_options

Array = Any  # numpy array or tensor, or a dict of them

# Options that only an algorithm can follow.
LEARNERS = {
    "rebuild_every": "it recomputes A from their replay buffer",
    "rebuild_rows": "it recomputes A from their replay buffer",
    "cross_episode_ends": "it pairs the states of their rollouts; give loss() the pairs that you mean",
}


class CAE(nn.Module):
    """The critic as an explorer, in two lines of anybody's training loop, with no parameter added.

        explorer = critex.CAE(embed, alpha=0.2)
        rewards = rewards + explorer(obs, actions)

    Args:
        embed: φ of the critic, `(obs, action) → [N, d]`; `critex.last_hidden(critic)` makes one from a module.
        alpha: exploration coefficient α.
        embedding: `"state_action"` calls `embed(obs, action)`. For a critic that takes only the state:
            `"state_and_action"` is [embed(obs); a], `"next_state"` is embed(next_obs), `"block"` is embed(obs) in
            the block of the action.
        num_actions: for integer actions, how many there are; without it actions are vectors.
        dim: the length of φ, inferred at the first call if not given.
        num_envs: rows of every call; an episodic memory is kept per env.
        preset: `"paper"` or `"official"` (what the released code does); any option given overrides it.
        ridge, strategy, scope, scaling, options: see `critex.explorers.EllipticalConfig`.
    """

    _name = "cae"

    def __init__(
        self,
        embed: Callable[..., Tensor],
        alpha: float = 1.0,
        *,
        ridge: float | None = None,
        strategy: str | None = None,
        scope: str | None = None,
        scaling: str | None = None,
        preset: str = "paper",
        embedding: Form = "state_action",
        num_actions: int | None = None,
        action_dim: int | None = None,
        dim: int | None = None,
        num_envs: int = 1,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(embed, nn.Module):
            raise UserError(
                "embed must be a function; for a module use critex.last_hidden(module) or its own method"
            )
        if num_actions is not None and action_dim is not None:
            raise UserError(
                "give num_actions for discrete actions or action_dim for continuous ones, not both"
            )
        self.alpha = alpha
        self.num_envs = num_envs
        # A tuple hides a module behind `embed` from registration: the critic's parameters stay the critic's.
        self._embed = (embed,)
        self._form: Form = embedding
        self._actions = (num_actions, action_dim)
        self._seed = seed
        options |= {"ridge": ridge, "strategy": strategy, "scope": scope, "scaling": scaling}
        given = {name: value for name, value in options.items() if value is not None}
        config = EXPLORERS[self._name].Config
        known = {field.name for field in fields(config)}
        for name in given:
            if name in LEARNERS:
                raise UserError(f"{name} is for critex's own algorithms: {LEARNERS[name]}")
            if name not in known:
                raise unknown("option", name, known - LEARNERS.keys())
        self.config = config(**{**preset_options(config, preset), **given, "embedding": embedding})
        if self.config.scaling == "batch":
            raise UserError(
                "scaling='batch' (of preset='official') scales batches in the learner, which this explorer does not "
                "see; give scaling='welford' or scaling='none'"
            )
        self.explorer: Elliptical | None = None
        self._dim: int | None = dim if dim is not None else getattr(embed, "dim", None)

    def _build(self, dim: int, width: int) -> Elliptical:
        num_actions, action_dim = self._actions
        critic = Embedding(
            critic=self._embed[0],
            critic_dim=dim,
            takes_action=self._form == "state_action",
            discrete=num_actions is not None,
            action_dim=num_actions or action_dim or width,
            form=self._form,
        )
        setting = Setting(embedding=critic, num_envs=self.num_envs, seed=self._seed)
        self.explorer = EXPLORERS[self._name](self.config, setting)
        self._built = (dim, width)
        return self.explorer

    def _transition(
        self, obs: Array, actions: Array, next_obs: Array | None, episode_start: Array | None
    ) -> Transition:
        state, action = _tensors(obs), _tensor(actions)
        n = len(action) if action.ndim else 0
        if n != self.num_envs:
            raise UserError(
                f"actions must have one row per env, [{self.num_envs}, …], got shape {list(action.shape)}; pass "
                f"num_envs={n or 'N'} to {type(self).__name__}, or obs[None] and actions[None] of a single env"
            )
        num_actions, _ = self._actions
        whole = not (action.is_floating_point() or action.is_complex())
        if whole and num_actions is None and self._form in ("state_and_action", "block"):
            raise UserError(
                f"integer actions with embedding={self._form!r} need num_actions=, how many there are"
            )
        if num_actions is not None and self._form == "block":
            action = action.long().reshape(n)  # also from [N, 1]
        after = state if next_obs is None else _tensors(next_obs)
        if self._form == "next_state" and next_obs is None:
            raise UserError("embedding='next_state' needs next_obs=, the state that each action led to")
        if episode_start is None:
            if self.config.scope == "episodic":
                raise UserError("an episodic memory needs episode_start=, one boolean per env")
            start = torch.zeros(n, dtype=torch.bool)
        else:
            start = _tensor(episode_start).bool()
            if start.shape != (n,):
                raise UserError(
                    f"episode_start must have one boolean per env, [{n}], got {list(start.shape)}"
                )
        no = torch.zeros(n, dtype=torch.bool)
        return Transition(
            obs=state, action=action, reward=torch.zeros(n), next_obs=after, terminated=no, truncated=no,
            episode_start=start,
        )  # fmt: skip

    @torch.no_grad()
    def __call__(
        self,
        obs: Array,
        actions: Array,
        *,
        next_obs: Array | None = None,
        episode_start: Array | None = None,
    ) -> Any:
        """α × scaled β of one vector step, one float64 number per env; then A ← A + φφᵀ.

        Args:
            obs: observations [N, …] in which the actions were taken.
            actions: [N] or [N, a]; a tensor gives a tensor, anything else an array.
            next_obs: where they led, for `embedding="next_state"`.
            episode_start: [N] booleans, this is the first step of an episode; required by an episodic memory.
        """
        step = self._transition(obs, actions, next_obs, episode_start)
        explorer = self.explorer or self._infer(step)
        bonus = self.alpha * explorer.bonus(step)
        return bonus.to(actions.device) if isinstance(actions, Tensor) else bonus.numpy(force=True)

    def _infer(self, step: Transition) -> Elliptical:
        form, embed = self._form, self._embed[0]
        if form == "state_action":
            phi = embed(step.obs, step.action)
        else:
            phi = embed(step.next_obs if form == "next_state" else step.obs)
        if not isinstance(phi, Tensor) or phi.ndim != 2 or len(phi) != len(step.action):
            got = list(phi.shape) if isinstance(phi, Tensor) else type(phi).__name__
            raise UserError(f"embed must return a tensor [N, d] with N={len(step.action)}, got {got}")
        if self._dim not in (None, phi.shape[1]):
            raise UserError(f"embed returns {phi.shape[1]} numbers where dim={self._dim} was given")
        return self._build(phi.shape[1], step.action.shape[1] if step.action.ndim > 1 else 1)

    def get_extra_state(self) -> tuple[int, int] | None:
        return None if self.explorer is None else self._built

    def set_extra_state(self, state: tuple[int, int] | None) -> None:
        pass  # used by load_state_dict, before the explorer's own state is loaded

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Restore memory, scaler and random state; also before the first call."""
        built = state_dict["_extra_state"]
        if built is not None and self.explorer is None:
            self._build(*built)
        return super().load_state_dict(state_dict, strict, assign)


class CAEPlus(CAE):
    """CAE+ for anybody's training loop: CAE on Uφ, with U trained beside the critic.

        explorer = critex.CAEPlus(embed, alpha=0.2, dim=256, action_dim=6)
        optimizer = torch.optim.Adam([*critic.parameters(), *explorer.parameters()])
        rewards = rewards + explorer(obs, actions)
        loss = bellman_loss + explorer.loss(batch_obs, batch_actions, batch_next_obs)

    Takes what `CAE` takes; `dim` (which `last_hidden` knows) and `num_actions` or `action_dim` are needed at
    once. `u_dim` are the rows of U (default d/4), `hidden` the width of the inverse dynamics (default 64).
    """

    _name = "cae_plus"

    def __init__(self, embed: Callable[..., Tensor], alpha: float = 1.0, **keywords: Any) -> None:
        super().__init__(embed, alpha, **keywords)
        if self._dim is None or self._actions == (None, None):
            raise UserError(
                "CAEPlus needs dim= (the length of φ) and num_actions= or action_dim= to make its networks"
            )
        self._build(self._dim, 0)

    def loss(self, obs: Array, actions: Array, next_obs: Array) -> Tensor:
        """L_f = −log p(a | Uφ(s), Uφ(s')), to be added to the critic's loss."""
        assert self.explorer is not None
        action = _tensor(actions)
        no = torch.zeros(action.shape[:1], dtype=torch.bool)
        return self.explorer.loss(
            Transition(_tensors(obs), action, no.float(), _tensors(next_obs), no, no, no)
        )


def _tensor(x: Any) -> Tensor:
    tensor = x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
    return tensor.float() if tensor.dtype == torch.float64 and not isinstance(x, Tensor) else tensor


def _tensors(x: Any) -> Tree:
    return {key: _tensors(value) for key, value in x.items()} if isinstance(x, dict) else _tensor(x)
