"""What the features behind a bonus look like: their eigenvalues, their norm against λ, and when the bonus is paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SHOWN = 10
"""Eigenvalues on the page."""
EARLY = 10
"""An explorer that pays most of its bonus in this many first steps hardly rewards later discoveries."""


@dataclass(frozen=True)
class FeatureSummary:
    """Features φ [n, d] of the steps that were played."""

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

    @property
    def warnings(self) -> list[str]:
        """Warnings about features that make the bonus uninformative."""
        if self.steps < 10 or self.dim < 2:
            return []
        found = []
        if self.variance_share < 0.01:
            found.append(
                f"Warning: φ hardly varies ({100 * self.variance_share:.2g} % of its squared norm over {self.steps} steps), "
                "so the bonus cannot tell these states apart."
            )
        elif self.effective_rank < 2:
            found.append(
                f"Warning: φ varies in {self.effective_rank:.2g} of its {self.dim} dimensions, so the bonus sees little "
                "of what is new."
            )
        if self.norm < 0.01 * self.ridge:
            found.append(
                f"Warning: ‖φ‖² is {self.norm:.2g} against λ = {self.ridge:g}: the memory hardly fills, and the bonus "
                "stays the same whatever was seen."
            )
        return found


def summarise(phi: Tensor, ridge: float) -> FeatureSummary:
    """Summarise features [n, d]."""
    phi = phi.double()
    centred = phi - phi.mean(0)
    eigenvalues = torch.linalg.svdvals(centred).square() / len(phi)  # descending
    norm, variance = float(phi.square().sum(1).mean()), float(eigenvalues.sum())
    p = eigenvalues[eigenvalues > 0] / variance if variance > 0 else torch.ones(1, dtype=torch.float64)
    return FeatureSummary(
        steps=len(phi),
        dim=phi.shape[1],
        eigenvalues=eigenvalues[:SHOWN].tolist(),
        effective_rank=float(torch.exp(-(p * p.log()).sum())),
        variance_share=variance / norm if norm > 0 else 0.0,
        norm=norm,
        ridge=ridge,
    )


def bonus_shares(episodes: Sequence[Sequence[float]], parts: int = 10) -> list[float]:
    """Share of the raw bonus paid in each tenth of an episode, over all episodes; empty if nothing was paid."""
    sums = [0.0] * parts
    for bonuses in episodes:
        for t, bonus in enumerate(bonuses):
            sums[t * parts // len(bonuses)] += max(bonus, 0.0)
    total = sum(sums)
    return [value / total for value in sums] if total > 0 else []


def early_share(episodes: Sequence[Sequence[float]]) -> float | None:
    """Share of the raw bonus paid in the first ten steps of episodes that are at least four times as long."""
    long = [bonuses for bonuses in episodes if len(bonuses) >= 4 * EARLY]
    total = sum(max(bonus, 0.0) for bonuses in long for bonus in bonuses)
    return (
        sum(max(bonus, 0.0) for bonuses in long for bonus in bonuses[:EARLY]) / total if total > 0 else None
    )


def early_warning(episodes: Sequence[Sequence[float]]) -> list[str]:
    """A warning if most of the bonus falls on the first steps."""
    share = early_share(episodes)
    if share is None or share <= 0.5:
        return []
    return [
        f"Warning: {100 * share:.0f} % of the bonus is paid in the first {EARLY} steps of an episode; later "
        "discoveries earn little."
    ]
