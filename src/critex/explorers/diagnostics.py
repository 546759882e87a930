"""Signs that a bonus no longer tells states apart: collapsed features, or one part that takes most of the bonus.

An explorer computes them when its metrics are logged, from the features of the latest steps; `critex explain` computes
them from the steps it plays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROWS = 128
"""Number of features that a running explorer keeps."""
SHOWN = 10
"""Number of eigenvalues in a summary."""
EARLY = 10
"""If an explorer pays most of its bonus in this many first steps, it hardly rewards later discoveries."""
LONG = 4 * EARLY
"""Length of the shortest episode in which this is measured."""
EPISODES = 10
"""Number of episodes over which it is measured."""
MOST = 0.7
"""Warn if one part takes more than this share of the bonus."""


@dataclass(frozen=True)
class FeatureSummary:
    """Features φ [n, d] of some steps; of φ = [φ(s); a] only φ(s), because actions vary even where features collapse."""

    steps: int
    dim: int
    eigenvalues: list[float]
    """The largest eigenvalues of the covariance of φ, in descending order."""
    effective_rank: float
    """exp(−Σ pᵢ log pᵢ) with pᵢ = eigenvalueᵢ / Σ eigenvalues: how many directions share the variance."""
    variance_share: float
    """tr(covariance) / mean ‖φ‖²: 0 if φ is the same in every step, 1 if its mean is zero."""
    norm: float
    """Mean ‖φ‖²."""
    ridge: float
    """λ."""
    action_share: float | None
    """The part of Σφᵀ(λI + Σφφᵀ)⁻¹φ that falls on the coordinates of the action, for φ = [φ(s); a]."""

    @property
    def warnings(self) -> list[str]:
        """Warnings about features that make the bonus uninformative."""
        if self.steps < 10:
            return []
        found = []
        variance = self.variance_share * self.norm
        # More than λ is new to the memory, however long φ is.
        if variance < 0.01 * self.norm and variance < 0.1 * self.ridge:
            found.append(
                f"Warning: φ hardly varies ({100 * self.variance_share:.2g} % of its squared norm over {self.steps} "
                "steps), so the bonus cannot tell these states apart."
            )
        elif self.effective_rank < 2 <= self.dim:
            found.append(
                f"Warning: φ varies in {self.effective_rank:.2g} of its {self.dim} dimensions, so the bonus sees little "
                "of what is new."
            )
        if self.norm < 0.01 * self.ridge:
            found.append(
                f"Warning: ‖φ‖² is {self.norm:.2g} compared with λ = {self.ridge:g}: the memory hardly fills, and the bonus "
                "stays the same whatever was seen."
            )
        if self.action_share is not None and self.action_share > MOST:
            found.append(
                f"Warning: {100 * self.action_share:.0f} % of the bonus comes from the action and not from the state, so "
                "it rewards trying all actions more than reaching new states."
            )
        return found

    def metrics(self) -> dict[str, float]:
        """The metrics that a run logs."""
        values = {
            "phi_rank": self.effective_rank,
            "phi_variance": self.variance_share,
            "phi_norm": self.norm / self.ridge,
        }
        return values if self.action_share is None else values | {"bonus_action": self.action_share}


def summarise(phi: Tensor, ridge: float, action_dim: int = 0) -> FeatureSummary:
    """Summarise features [n, d] whose last `action_dim` coordinates are the action."""
    whole = phi.detach().cpu().double()
    phi = whole[:, : whole.shape[1] - action_dim]
    n = len(phi)
    centred = phi - phi.mean(0)
    # The smaller one; same eigenvalues.
    square = centred @ centred.T if n < phi.shape[1] else centred.T @ centred
    eigenvalues = torch.linalg.eigvalsh(square).flip(0).clamp_min(0) / n
    norm, variance = float(phi.square().sum(1).mean()), float(eigenvalues.sum())
    p = eigenvalues[eigenvalues > 0] / variance if variance > 0 else torch.ones(1, dtype=torch.float64)
    return FeatureSummary(
        steps=n,
        dim=phi.shape[1],
        eigenvalues=eigenvalues[:SHOWN].tolist(),
        effective_rank=float(torch.exp(-(p * p.log()).sum())),
        variance_share=variance / norm if norm > 0 else 0.0,
        norm=norm,
        ridge=ridge,
        action_share=_action_share(whole, ridge, action_dim) if action_dim else None,
    )


def _action_share(phi: Tensor, ridge: float, action_dim: int) -> float:
    """Σ_{j in action} s_j / Σ_j s_j with s_j = (A⁻¹ΦᵀΦ)_jj = Σ_i Φ_ij (K⁻¹Φ)_ij, A = λI + ΦᵀΦ and K = λI + ΦΦᵀ.

    Σ_j s_j is the sum of φᵀA⁻¹φ over the rows of Φ.
    """
    kernel = phi @ phi.T
    kernel.diagonal().add_(ridge)
    shares = (phi * torch.linalg.solve(kernel, phi)).sum(0)
    total = float(shares.sum())
    return float(shares[-action_dim:].sum()) / total if total > 0 else 0.0


def collapse_warning(dimension: float, widest: float) -> list[str]:
    """A warning if a memory that was rebuilt from the same steps has lost more than half of its effective dimensions."""
    if dimension >= widest / 2:
        return []
    return [
        f"Warning: φ is collapsing: A has {dimension:.0f} effective dimensions, and had {widest:.0f}. States that "
        "looked different now look alike, so new ones earn little."
    ]


class EarlyShare:
    """The share of an episode's bonus that falls on its first steps, for episodes of at least `LONG` steps.

    Bonuses of Thompson sampling may be negative; they count by their size.
    """

    def __init__(self) -> None:
        self._running: dict[int, list[float]] = {}  # env → steps, bonus of the first ones, bonus of all
        self._shares: deque[float] = deque(maxlen=EPISODES)

    def add(self, bonus: Sequence[float], starts: Sequence[bool], envs: Sequence[int] | None = None) -> None:
        """One vector step: bonuses, and which of them are the first of an episode; `envs` names the env of each."""
        for i, (value, start) in enumerate(zip(bonus, starts, strict=True)):
            env = i if envs is None else envs[i]
            if start or env not in self._running:
                self._finish(*self._running.get(env, (0.0, 0.0, 0.0)))
                self._running[env] = [0.0, 0.0, 0.0]
            running = self._running[env]
            if running[0] < EARLY:
                running[1] += abs(value)
            running[0] += 1
            running[2] += abs(value)

    def _finish(self, steps: float, early: float, total: float) -> None:
        if steps >= LONG and total > 0:
            self._shares.append(early / total)

    @property
    def value(self) -> float | None:
        """The mean share of the latest episodes; None before there are enough of them."""
        return sum(self._shares) / EPISODES if len(self._shares) == EPISODES else None

    @property
    def warnings(self) -> list[str]:
        """A warning if most of the bonus falls on the first steps."""
        return early_warning(self.value)

    def state_dict(self) -> dict[str, Any]:
        """All counters."""
        return {"running": [[env, *x] for env, x in self._running.items()], "shares": list(self._shares)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self._running = {int(env): list(x) for env, *x in state["running"]}
        self._shares = deque(state["shares"], maxlen=EPISODES)


def early_warning(share: float | None) -> list[str]:
    """A warning if the first steps take most of the bonus."""
    if share is None or share <= MOST:
        return []
    return [
        f"Warning: {100 * share:.0f} % of the bonus is paid in the first {EARLY} steps of an episode; later "
        "discoveries earn little."
    ]
