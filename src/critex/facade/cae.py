"""CAE for your own training loop.

explorer = critex.CAE(critic, alpha=0.2, envs=envs)
rewards = rewards + explorer(obs, actions, ended=terminated | truncated)    # + α·β; then A ← A + φφᵀ
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from operator import itemgetter
from typing import Any, Literal, NoReturn, get_args

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import tree_leaves
from critex.embedding import Embedding, Form
from critex.errors import UserError, unknown
from critex.explorers import EXPLORERS, Setting
from critex.explorers._alpha import Alpha, HasAlpha, fixed_or_auto
from critex.explorers.elliptical import Elliptical

from ._loop import (
    Actions,
    Array,
    Autoreset,
    Batches,
    Episodes,
    Flags,
    Loop,
    embed_of,
    form_of,
    to_flags,
    to_tensor,
    to_tensors,
)

# Options that only critex's own algorithms support.
NEEDS_AN_ALGORITHM = {
    "rebuild_every": "it recomputes A from their replay buffer",
    "rebuild_rows": "it recomputes A from their replay buffer",
    "cross_episode_ends": "it pairs the states of their rollouts; give loss() the pairs that you mean",
}


class CAE(HasAlpha, nn.Module):
    """The critic as an explorer in your own training loop, with no parameters added.

        explorer = critex.CAE(critic, alpha=0.2, envs=envs)
        rewards = rewards + explorer(obs, actions, ended=terminated | truncated)

    Args:
        critic: the value network: a module, used through its `embed` method if it has one and through
            `critex.last_hidden` otherwise, or a function that returns φ [N, d].
        alpha: exploration coefficient α: a number, or `"auto"`, which sets it from the scales of rewards and bonuses.
            The attribute `alpha` is the current value.
        envs: the environment or vector environment of your loop. It is read once, for the number of environments,
            the actions and the autoreset mode; without it, give `num_actions` for discrete actions.
        embedding: `"state_action"` is φ(s,a) of a critic that takes the action. For a critic that takes only the
            state: `"state_and_action"` is [φ(s); a], `"next_state"` is φ(s'), `"block"` is φ(s) in the block of the
            action, `"state"` is φ(s). `"auto"` is the first if the critic takes an action, else the second.
        num_actions: number of discrete actions.
        action_dim: length of actions that are vectors (inferred at the first call).
        dim: length of φ (inferred at the first call).
        autoreset: what follows the step that ended an episode: `"next_step"`, a step in which the environment only
            resets and ignores the action (gymnasium's vector environments), or `"same_step"`, the first step of the
            next episode (also if you call `reset` yourself). Default: the mode of `envs`, else `"same_step"`.
        num_envs: rows of every call (inferred at the first call).
        gamma: discount γ of your algorithm, for `alpha="auto"`.
        seed: seed of the draws of Thompson sampling, and of the networks of CAE+.
        preset: `"paper"` or `"official"` (the released code); your options override it.
        ridge: λ in A = λI + Σφφᵀ.
        strategy: `"ucb"`, `"ucb_squared"` or `"thompson"`.
        scope: `"lifelong"` or `"episodic"`.
        scaling: `"welford"` or `"none"`.
        options: the other fields of `critex.explorers.EllipticalConfig`.
    """

    _method = "cae"

    def __init__(
        self,
        critic: nn.Module | Callable[..., Tensor],
        alpha: float | Literal["auto"] = 1.0,
        *,
        envs: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | None = None,
        embedding: Form | Literal["auto"] = "auto",
        num_actions: int | None = None,
        action_dim: int | None = None,
        dim: int | None = None,
        num_envs: int | None = None,
        autoreset: Autoreset | None = None,
        preset: str = "paper",
        ridge: float | None = None,
        strategy: str | None = None,
        scope: str | None = None,
        scaling: str | None = None,
        gamma: float = 0.99,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        if num_actions is not None and action_dim is not None:
            raise UserError(
                "give num_actions for discrete actions or action_dim for continuous ones, not both"
            )
        if autoreset not in (None, *get_args(Autoreset)):
            raise unknown("autoreset", str(autoreset), get_args(Autoreset))
        self._actions = Actions(num_actions, action_dim)
        if envs is not None:
            loop = Loop.of(envs)
            num_envs, autoreset = num_envs or loop.num_envs, autoreset or loop.autoreset
            if num_actions is None and action_dim is None:
                self._actions = Actions.of(loop.action_space)
        self._alpha = fixed_or_auto(alpha, gamma)
        self._episodes = Episodes(autoreset or "same_step")
        embed = Batches(embed_of(critic))
        if embedding not in ("auto", *get_args(Form)):
            raise unknown("embedding", embedding, ["auto", *get_args(Form)])
        form = form_of(embed.embed, None if embedding == "auto" else embedding)
        self._embed, self._form, self._seed = embed, form, seed
        self._reader = Embedding(embed, 0, True, False, 1, "state_action")  # until the length of φ is known
        self._num_envs = num_envs
        self._dim: int | None = dim if dim is not None else getattr(embed.embed, "dim", None)
        given = options | {"ridge": ridge, "strategy": strategy, "scope": scope, "scaling": scaling}
        self.config = self._options(preset, {name: x for name, x in given.items() if x is not None})
        self.explorer: Elliptical | None = None  # built at the first call, when the length of φ is known
        # Rewards and flags that no bonus uses.
        self._blank = (torch.zeros(0), torch.zeros(0, dtype=torch.bool))

    def _options(self, preset: str, given: dict[str, Any]) -> Any:
        from critex.presets import preset_options  # reads files, so only when an explorer is made

        config = EXPLORERS[self._method].Config
        known = {field.name for field in fields(config)}
        for name in given:
            if name in NEEDS_AN_ALGORITHM:
                raise UserError(f"{name} is for critex's own algorithms: {NEEDS_AN_ALGORITHM[name]}")
            if name not in known:
                raise unknown("option", name, known - NEEDS_AN_ALGORITHM.keys())
        made = config(**{**preset_options(config, preset), **given, "embedding": self._form})
        if made.scaling == "batch":
            raise UserError(
                "scaling='batch' (of preset='official') scales batches in the learner, which this explorer does not "
                "see; give scaling='welford' or scaling='none'"
            )
        return made

    # The bonus ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def __call__(
        self,
        obs: Array,
        actions: Array,
        *,
        next_obs: Array | None = None,
        ended: Array | None = None,
        episode_start: Array | None = None,
        rewards: Array | None = None,
    ) -> Any:
        """α·β of one vector step, [N], then A ← A + φφᵀ. A tensor if `actions` is one, else an array.

        Args:
            obs: observations [N, …] in which the actions were taken.
            actions: [N] or [N, a].
            next_obs: where the actions led, for `embedding="next_state"`.
            ended: [N], `terminated | truncated` of this step. It tells the explorer where episodes begin, and
                which steps of a vector environment are only resets. These get no bonus and are not remembered.
            episode_start: [N], instead of `ended`, unless autoreset is `"next_step"`: this is the first step of an episode.
            rewards: [N], the rewards of this step without a bonus; `alpha="auto"` needs them, and one of the last two.
        """
        step = self._transition(obs, actions, next_obs)
        reward = self._rewards(rewards, step)
        begins, real = self._boundaries(len(step), ended, episode_start)
        step.episode_start = torch.from_numpy(begins)
        explorer = self.explorer or self._infer(step)
        bonus = self._bonus(explorer, step, real)
        return self._paid(self._weight(reward, bonus, begins, real) * bonus, actions)

    def _bonus(self, explorer: Elliptical, step: Transition, real: Flags) -> Tensor:
        """Scaled β of one vector step, [N]; rows that are only resets get no bonus and are not remembered."""
        if real.all():
            return explorer.bonus(step)
        bonus, rows = torch.zeros(len(real), dtype=torch.float64), torch.from_numpy(real.nonzero()[0])
        if len(rows):
            some = step.map(lambda x: x[rows.to(x.device)])
            bonus[rows] = explorer.bonus(replace(some, info={"env": rows})).cpu().double()
        return bonus

    @torch.no_grad()
    def rollout(
        self,
        obs: Array,
        actions: Array,
        *,
        next_obs: Array | None = None,
        ended: Array | None = None,
        episode_start: Array | None = None,
        rewards: Array | None = None,
    ) -> Any:
        """α·β of a whole rollout in time order, [T, N]: the same as T calls, in one forward pass of the critic.

        The arguments are those of a call with a leading axis T. Call it before advantages are computed, while the
        critic is still the one that collected the rollout.
        """
        steps = self._transition(obs, actions, next_obs, rollout=True)
        reward = self._rewards(rewards, steps)
        time, n = steps.reward.shape
        ends, starts = (
            [None] * time if x is None else to_flags(name, x, (time, n))
            for name, x in (("ended", ended), ("episode_start", episode_start))
        )
        flags = [self._boundaries(n, *step) for step in zip(ends, starts, strict=True)]
        begins, real = (np.stack(column) for column in zip(*flags, strict=True))
        steps.episode_start = torch.from_numpy(begins)
        explorer = self.explorer or self._infer(steps.map(itemgetter(0)))
        if real.all():
            bonus = explorer.bonus_rollout(steps)
        elif explorer.episodic or self.config.simultaneous or self.config.thompson_hold:
            each = (self._bonus(explorer, steps.map(itemgetter(t)), real[t]) for t in range(time))
            bonus = torch.stack(list(each))
        else:  # one memory sees the real rows one after the other
            bonus = torch.zeros(time, n, dtype=torch.float64)
            rows = torch.from_numpy(real)
            some = steps.map(lambda x: x[rows.to(x.device)].unsqueeze(1))
            bonus[rows] = explorer.bonus_rollout(some).squeeze(1).cpu().double()
        if reward is not None:  # α changes with every step
            weights = map(self._weight, reward, bonus, begins, real)
            return self._paid(
                torch.tensor(list(weights), dtype=bonus.dtype).unsqueeze(1) * bonus.cpu(), actions
            )
        return self._paid(self.alpha * bonus, actions)

    def _rewards(self, rewards: Array | None, steps: Transition) -> Tensor | None:
        """The rewards in the shape of the steps, for the rule `auto`; None if α is a number."""
        if not self._alpha.rule:
            return None
        if rewards is None:
            raise UserError("alpha='auto' needs rewards=, the rewards of the step without a bonus")
        reward = to_tensor(rewards, torch.empty(0))
        if reward.shape != steps.reward.shape:
            raise UserError(
                f"rewards must have the shape of actions, {list(steps.reward.shape)}; got {list(reward.shape)}"
            )
        return reward

    def _weight(self, reward: Tensor | None, bonus: Tensor, begins: Flags, real: Flags) -> float:
        """α of one vector step with the scaled bonuses [N]."""
        if reward is None:
            return self.alpha
        rows = torch.from_numpy(real.nonzero()[0])
        starts = torch.from_numpy(begins)[rows]
        return self._alpha.observe(reward[rows], bonus.cpu()[rows], starts, envs=rows.tolist())

    @torch.no_grad()
    def peek(self, obs: Array, actions: Array, *, next_obs: Array | None = None) -> Any:
        """α·β of the given transitions under the current memory, [N]; nothing is remembered.

        With episodic memories of several environments, row i is measured by the memory of environment i.
        """
        step = self._transition(obs, actions, next_obs, peek=True)
        n = self._num_envs or 1
        if self.config.scope == "episodic" and n > 1 and len(step) != n:
            raise UserError(
                f"each of the {n} environments has its own episodic memory: peek takes {n} rows, one for each; got "
                f"{len(step)}"
            )
        explorer = self.explorer or self._infer(step)
        draws = explorer._generator.get_state()
        _, scaled = explorer.measure(step.obs, step.action, step.next_obs)
        explorer._generator.set_state(draws)  # Thompson sampling draws for this call only
        explorer._delta = None
        return self._paid(self.alpha * scaled, actions)

    def reset(self) -> None:
        """Forget memory, scaler, episode boundaries and what `alpha="auto"` has seen. The networks of CAE+ are kept."""
        self._alpha = Alpha(self._alpha.rule or self.alpha, self._alpha.gamma)
        self._episodes = Episodes(self._episodes.autoreset)
        if self.explorer is not None:
            self._rebuild(self.explorer)

    def begin_episodes(self) -> None:
        """Say that you have reset all environments, other than after the end of an episode: new episodes begin."""
        self._episodes = Episodes(self._episodes.autoreset)

    def metrics(self) -> dict[str, float]:
        """Means of the bonuses since the last call, and diagnostics of φ; prints a warning once if φ hardly varies."""
        return {} if self.explorer is None else self.explorer.metrics() | {"alpha": self.alpha}

    def _paid(self, bonus: Tensor, actions: Array) -> Any:
        """α·β in single precision, so that adding it keeps the dtype of the rewards."""
        bonus = bonus.to(torch.get_default_dtype())
        return bonus.to(actions.device) if isinstance(actions, Tensor) else bonus.numpy(force=True)

    # Inputs from the loop -----------------------------------------------------------------------------------

    def _transition(
        self,
        obs: Array,
        actions: Array,
        next_obs: Array | None,
        *,
        rollout: bool = False,
        peek: bool = False,
    ) -> Transition:
        """The step as tensors on the critic's device, or one clear error."""
        weight = self._reader.weight
        state, action = to_tensors(obs, weight), to_tensor(actions, weight)
        shape = action.shape[: 1 + rollout]
        wanted = "[T, N, …]" if rollout else "[N, …]"
        if len(shape) < 1 + rollout or not all(shape):
            one = "[:, None]" if rollout else "[None]"
            raise UserError(
                f"actions must be {wanted}, got {list(action.shape)}; for a single environment pass obs{one} and "
                f"actions{one}"
            )
        if not peek and self._num_envs not in (None, shape[-1]):
            raise UserError(
                f"got the actions of {shape[-1]} environments; this explorer has {self._num_envs}"
            )
        if self._form == "next_state" and next_obs is None:
            raise UserError("embedding='next_state' needs next_obs=, the state that each action led to")
        after = state if next_obs is None else to_tensors(next_obs, weight)
        for leaf in tree_leaves(state) + tree_leaves(after):
            if leaf.shape[: len(shape)] != shape:
                raise UserError(
                    f"observations must be {wanted}, beginning with {list(shape)} as actions do; got {list(leaf.shape)}"
                )
        self._embed.row_axes = tree_leaves(state)[0].ndim - len(shape)
        if self._blank[0].shape != shape:
            self._blank = (torch.zeros(shape), torch.zeros(shape, dtype=torch.bool))
        zero, no = self._blank
        action = self._actions.checked(action, len(shape), self._form)
        step = Transition(state, action, zero, after, no, no, no, zero)
        if not peek and self._num_envs is None:  # after all checks: a mistaken call must not decide it
            self._num_envs = shape[-1]
            if self.explorer is not None:  # built before anybody knew this number
                self._rebuild(self.explorer)
        return step

    def _boundaries(self, n: int, ended: Array | None, episode_start: Array | None) -> tuple[Flags, Flags]:
        episodic = self.config.scope == "episodic" or self.config.zero_first or self.config.thompson_hold
        if ended is None and episode_start is None and (episodic or self._alpha.rule):
            which = "an episodic memory" if episodic else "alpha='auto'"
            raise UserError(f"{which} needs ended=, terminated | truncated of the step, [N]")
        return self._episodes.step(n, ended, episode_start)

    # Building, saving ---------------------------------------------------------------------------------------

    def _infer(self, step: Transition) -> Elliptical:
        """Build the explorer from the critic's output for a first step."""
        if self._form == "state_action":
            phi = self._reader.phi(step.obs, step.action)
        else:
            phi = self._reader.phi(step.next_obs if self._form == "next_state" else step.obs)
        if not isinstance(phi, Tensor) or phi.ndim != 2 or len(phi) != len(step.action):
            got = list(phi.shape) if isinstance(phi, Tensor) else type(phi).__name__
            raise UserError(f"the critic's φ must be a tensor [N, d] with N={len(step.action)}, got {got}")
        if self._dim is None and phi.shape[1] == 1:
            raise UserError(
                "this function returns one number per row, the value perhaps, where φ should be a vector; "
                "critex.last_hidden(critic) gives φ of a critic, and dim=1 says that one number is meant"
            )
        if self._dim not in (None, phi.shape[1]):
            raise UserError(f"the critic's φ has length {phi.shape[1]}, but dim={self._dim} was given")
        return self._build(phi.shape[1], step.action.shape[1] if step.action.ndim > 1 else 1)

    def _build(self, dim: int, width: int) -> Elliptical:
        num_actions, action_dim = self._actions.num_actions, self._actions.action_dim
        critic = Embedding(
            critic=self._embed,
            critic_dim=dim,
            takes_action=self._form == "state_action",
            discrete=num_actions is not None,
            action_dim=num_actions or action_dim or width,
            form=self._form,
            bounds=self._actions.bounds,
        )
        setting = Setting(embedding=critic, num_envs=self._num_envs or 1, seed=self._seed)
        with torch.random.fork_rng(devices=[]):  # networks follow `seed` alone
            torch.manual_seed(setting.own_seed())
            self.explorer = EXPLORERS[self._method](self.config, setting)
        self._built = (dim, width)
        return self.explorer

    def _rebuild(self, old: Elliptical) -> None:
        """An explorer with an empty memory and the networks of the old one: an optimiser may have their parameters."""
        networks = {name: x for name, x in old.named_children() if next(x.parameters(), None) is not None}
        new = self._build(*self._built)
        for name, network in networks.items():
            setattr(new, name, network)

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "built": None if self.explorer is None else self._built,
            "num_envs": self._num_envs,
            "episodes": self._episodes.state(),
            "alpha": self._alpha.state_dict(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._alpha.load_state_dict(state["alpha"])
        if state["num_envs"] == self._num_envs:  # a lifelong memory may go on with other environments
            self._episodes.load(state["episodes"])

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any, **keywords: Any
    ) -> None:
        """First build the explorer that the state belongs to; also works if this module is part of another one."""
        state = state_dict.get(f"{prefix}_extra_state")
        if state is not None and state["built"] is not None:
            dim, width = state["built"]
            if self._dim not in (None, dim) or (self.explorer is not None and self._built[0] != dim):
                raise UserError(
                    f"this state is for features of length {dim}; the critic's φ here has length "
                    f"{self._dim or self._built[0]}"
                )
            if self._num_envs not in (None, state["num_envs"]) and self.config.scope == "episodic":
                raise UserError(
                    f"this state has the memories of {state['num_envs']} environments; this explorer has {self._num_envs}"
                )
            known, self._num_envs = self._num_envs, self._num_envs or state["num_envs"]
            if self.explorer is None:
                self._build(dim, width)
            elif known is None:
                self._rebuild(self.explorer)
        super()._load_from_state_dict(state_dict, prefix, *rest, **keywords)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UserError(
            f"a {type(self).__name__} reads a critic that is not its own, so it is not pickled or copied; save "
            "explorer.state_dict() and load it into a new one"
        )
