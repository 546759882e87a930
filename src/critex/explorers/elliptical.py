"""The elliptical bonus over any embedding: CAE, CAE+ and E3B are this one mechanism.

A = λI + Σφφᵀ,    β = √(φᵀA⁻¹φ) (UCB)    or    β = Δθᵀφ, Δθ ~ N(0, A⁻¹) (Thompson)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from critex.bonus import STRATEGIES, Gram
from critex.data import Replay, Transition
from critex.data.tree import Tree
from critex.embedding import Form
from critex.errors import UserError, unknown
from critex.explorers.base import Explorer, Setting
from critex.explorers.diagnostics import ROWS, FeatureSummary, collapse_warning, summarise
from critex.explorers.scaling import ScaledExplorer, Scaling, ScalingConfig
from critex.ranges import Count, Natural, Positive

FormOption = Literal["auto", Form]
Scope = Literal["lifelong", "episodic"]


@dataclass(frozen=True)
class EllipticalConfig(ScalingConfig):
    """Options of the elliptical bonus. Where the paper and its released code disagree, presets/*.toml has both."""

    scaling: Scaling = "welford"
    strategy: str = "ucb"
    """How φᵀA⁻¹φ becomes a bonus: ucb (its root), ucb_squared, thompson."""
    scope: Scope = "lifelong"
    """One memory A for the whole run (lifelong), or one per env, reset at the start of each episode (episodic)."""
    ridge: Positive = 1.0
    """λ in A = λI + Σφφᵀ."""
    zero_first: bool = False
    """No bonus for the first step of an episode (it still enters the memory)."""
    simultaneous: bool = False
    """Compute the bonuses of all envs of a vector step before any of them updates A."""
    embedding: FormOption = "auto"
    """The feature: φ(s,a), for critics that take the action (state_action), [φ(s); a] (state_and_action), φ(s')
    (next_state), φ(s) in the block of action a (block), or φ(s) alone (state). auto: the first if the critic takes the
    action, else the second."""
    phi_norm: Positive | None = None
    """Rescale every φ to this length."""
    rebuild_every: Natural = 0
    """Env steps between two rebuilds of A from the replay buffer with the current φ (0: never)."""
    rebuild_rows: Count = 100_000
    """Number of newest transitions used in a rebuild."""
    thompson_hold: bool = False
    """With strategy=thompson and the bonus in the reward: draw Δθ once per episode of each env. Otherwise it is drawn
    for each transition, and the mean bonus is zero whatever the agent does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strategy not in STRATEGIES:
            raise unknown("strategy", self.strategy, STRATEGIES)
        if self.rebuild_every and self.scope == "episodic":
            raise UserError(
                "rebuild_every needs a lifelong memory; an episodic one is reset with each episode"
            )
        if self.thompson_hold and not STRATEGIES[self.strategy].random:
            raise UserError(f"thompson_hold is for strategy=thompson, not {self.strategy}")


class Elliptical(ScaledExplorer):
    """The elliptical bonus over the features that `phi` computes, with A kept in a `Gram`."""

    Config = EllipticalConfig

    def __init__(self, config: EllipticalConfig, setting: Setting, width: int | None = None) -> None:
        super().__init__(config)
        form: Form = setting.embedding.form if config.embedding == "auto" else config.embedding
        if form == "state_action" and not setting.embedding.takes_action:
            raise UserError(
                "this critic takes only the state; use embedding=state_and_action, next_state, block or state"
            )
        if form == "block" and not setting.embedding.discrete:
            raise UserError("embedding=block needs discrete actions; use embedding=auto")
        self.config = config
        self.embedding = replace(setting.embedding, form=form, norm=config.phi_norm)
        self.episodic = config.scope == "episodic"
        self.compares_actions = form not in ("next_state", "state")
        self.strategy = STRATEGIES[config.strategy]
        memories = (setting.num_envs if self.episodic else 1) * self.embedding.blocks
        self.gram = Gram(self.embedding.dim(width), ridge=config.ridge, memories=memories)
        self._generator = torch.Generator().manual_seed(setting.own_seed())
        # Δθ [memories, d] for comparing actions, held for an episode of the first env.
        self._delta: Tensor | None = None
        self._num_envs = setting.num_envs
        # Features of the latest steps or of the latest rollout, [n, d] each, for `metrics`.
        self._recent: deque[Tensor] = deque(maxlen=max(ROWS // setting.num_envs, 1))
        self._held: Tensor | None = None  # Δθ [N, blocks, d] for the reward, held for an episode of each env
        self._steps = self._rebuilt_at = 0
        self._drift: float | None = None
        self._widest = 0.0  # the largest effective dimension so far

    def phi(self, obs: Tree, action: Tensor, next_obs: Tree | None, state: Tensor | None = None) -> Tensor:
        """Features of transitions, [..., dim]; `state` is φ(s), if it has been computed already."""
        return self.embedding(obs, action, next_obs, state=state)

    def phi_each_action(self, obs: Tree) -> Tensor:
        """Features of every action, [..., A, dim]."""
        return self.embedding.each_action(obs)

    def _bonus(self, step: Transition) -> tuple[Tensor, Tensor]:
        phi = self.phi(step.obs, step.action, step.next_obs)
        self._recent.append(phi)
        envs = step.info.get("env")  # the env of each row, if some envs have no row in this step
        if self.episodic and step.episode_start.any():
            starts = step.episode_start
            if envs is not None:
                starts = torch.zeros(self.gram.memories // self.embedding.blocks, dtype=torch.bool)
                starts[envs] = step.episode_start
            self.gram.reset(starts.repeat_interleave(self.embedding.blocks))
        held = self._held_projection(phi, step) if self.config.thompson_hold else None
        memory = self._memory(step.action, envs)
        quadratic = self.gram.observe(phi, memory, simultaneous=self.config.simultaneous)
        return self._pay(quadratic, step, held)

    def _held_projection(self, phi: Tensor, step: Transition) -> Tensor:
        """Δθᵀφ [N], Δθ ~ N(0, A⁻¹) drawn for each env at the first step of its episode."""
        n, blocks = len(phi), self.embedding.blocks
        envs = step.info.get("env", torch.arange(n))
        fresh = envs[step.episode_start.cpu()]
        if self._held is None:
            fresh = torch.arange(self._num_envs)
            self._held = torch.zeros(
                self._num_envs, blocks, self.gram.dim, dtype=self.gram.dtype, device=self.gram.device
            )
        for i in fresh.tolist():
            memories = slice(i * blocks, (i + 1) * blocks) if self.episodic else slice(None)
            self._held[i] = self.gram.sample(self._generator)[memories]
        block = step.action if blocks > 1 else torch.zeros(n, dtype=torch.int64)
        delta = self._held[envs, block.to(self._held.device)]
        return (phi.to(delta) * delta).sum(-1)

    def _memory(self, action: Tensor, envs: Tensor | None = None) -> Tensor | None:
        """The index of each row's memory, [..., N]; None if row i belongs to memory i, or if there is only one memory."""
        blocks = self.embedding.blocks
        if not self.episodic or self._num_envs == 1:
            return action if blocks > 1 else None
        if envs is None:
            if blocks == 1:
                return None
            envs = torch.arange(action.shape[-1], device=action.device)
        return blocks * envs + action if blocks > 1 else envs

    def _bonus_rollout(self, rollout: Transition, phi: Tensor | None) -> tuple[Tensor, Tensor]:
        one_by_one = self.embedding.blocks > 1 or self.config.thompson_hold
        if one_by_one or (self.config.simultaneous and not self.episodic):
            return Explorer._bonus_rollout(self, rollout, phi)
        phi = self.phi(rollout.obs, rollout.action, rollout.next_obs, phi)
        rows = phi.flatten(0, 1)
        self._recent.clear()
        spread = torch.linspace(0, len(rows) - 1, min(len(rows), ROWS), device=rows.device)  # over all envs
        self._recent.append(rows[spread.long()])
        quadratic = self.gram.observe_rollout(phi, rollout.episode_start if self.episodic else None)
        return self._pay(quadratic, rollout)

    def _pay(
        self, quadratic: Tensor, step: Transition, projected: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(raw, scaled) bonuses of φᵀA⁻¹φ; `projected` is Δθᵀφ, if Δθ is held."""
        noise = None
        if projected is not None:
            noise = _standardised(projected, quadratic)
        elif self.strategy.random:  # Δθᵀφ of a single φ is N(0, φᵀA⁻¹φ)
            noise = torch.randn(quadratic.shape, generator=self._generator, dtype=quadratic.dtype)
            noise = noise.to(quadratic.device)
        raw = self.strategy(quadratic, noise)
        if self.config.zero_first:
            raw = raw.masked_fill(step.episode_start.to(raw.device), 0.0)
        self._steps += raw.numel()
        if self._delta is not None and step.ended[..., 0].any():
            self._delta = None
        return self._scale_and_update(raw)

    @torch.no_grad()
    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        return self._measure(self.phi(obs, action, next_obs), self._memory(action))

    @torch.no_grad()
    def measure_actions(self, obs: Tree) -> tuple[Tensor, Tensor]:
        phi = self.phi_each_action(obs)
        return self._measure(phi, torch.arange(self.embedding.blocks) if self.embedding.blocks > 1 else None)

    def _measure(self, phi: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        # The critic may be on a GPU while the memory is on the CPU.
        phi = phi.to(self.gram.device, self.gram.dtype)
        quadratic = self.gram.quadratic(phi, memory)
        noise = None
        if self.strategy.random:  # rows that are compared share one Δθ
            if self._delta is None:
                self._delta = self.gram.sample(self._generator)
            delta = self._delta.to(phi)
            projected = (phi * (delta if memory is None else delta[memory.to(phi.device)])).sum(-1)
            noise = _standardised(projected, quadratic)
        raw = self.strategy(quadratic, noise)
        return self._scale_only(raw)

    @torch.no_grad()
    def refresh(self, replay: Replay) -> None:
        """A ← λI + Σφφᵀ over the newest transitions of the replay buffer, with the current φ.

        The relative change ‖A_new − A_old‖/‖A_old‖ (Frobenius) is logged as `phi_drift`. It is 0 if φ did not change
        and the buffer holds everything that A has seen.
        """
        every = self.config.rebuild_every
        if every and self._steps - self._rebuilt_at >= every:
            self._rebuilt_at = self._steps
            rows, old = replay.last(self.config.rebuild_rows), self.gram.matrix()
            phi, memory = self._phi_of_many(rows), self._memory(rows.action)
            for i in range(self.gram.memories):
                self.gram.rebuild(phi if memory is None else phi[memory == i], i)
            self._drift = float((self.gram.matrix() - old).norm() / old.norm())

    def _phi_of_many(self, rows: Transition) -> Tensor:
        """φ [n, d], a thousand rows at a time: hidden layers over images take much more memory than φ itself."""
        slices = (rows.map(lambda x, i=i: x[i : i + 1000]) for i in range(0, len(rows), 1000))
        parts = (part.to(self.embedding.device) for part in slices)
        return torch.cat([self.phi(part.obs, part.action, part.next_obs) for part in parts])

    def metrics(self) -> dict[str, float]:
        values = super().metrics()
        values["effective_dimension"] = dimension = float(self.gram.effective_dimension().mean())
        self._widest = max(self._widest, dimension)
        if self.config.rebuild_every:  # otherwise a lifelong memory only grows
            self._warn_once("collapse", collapse_warning(dimension, self._widest))
        if self._drift is not None:
            values["phi_drift"] = self._drift
        if self._recent:
            summary = self.summary(torch.cat([*self._recent]))
            self._warn_once("features", summary.warnings)
            values |= summary.metrics()
        return values

    def summary(self, phi: Tensor) -> FeatureSummary:
        """Diagnostics of the bonus from features [n, d]."""
        action = self.embedding.action_dim if self.embedding.form == "state_and_action" else 0
        return summarise(phi, self.config.ridge, action)

    def get_extra_state(self) -> dict[str, Any]:
        return super().get_extra_state() | {
            "generator": self._generator.get_state(),
            "delta": self._delta,
            "held": self._held,
            "steps": (self._steps, self._rebuilt_at),
            "drift": self._drift,
            "widest": self._widest,
            "recent": list(self._recent),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self._generator.set_state(state["generator"])
        self._delta = state["delta"]
        held = state["held"]
        self._held = held if held is not None and len(held) == self._num_envs else None
        self._steps, self._rebuilt_at = state["steps"]
        self._drift, self._widest = state["drift"], state["widest"]
        self._recent.clear()
        self._recent.extend(phi.to(self.embedding.device) for phi in state["recent"])


def _standardised(projected: Tensor, quadratic: Tensor) -> Tensor:
    """z = Δθᵀφ/√(φᵀA⁻¹φ), the noise that a strategy takes."""
    return projected / quadratic.sqrt().clamp_min(torch.finfo(quadratic.dtype).tiny)
