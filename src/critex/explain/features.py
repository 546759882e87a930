"""When the bonus is paid within an episode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critex.explorers.diagnostics import EARLY, LONG


def bonus_shares(episodes: Sequence[Sequence[float]], parts: int = 10) -> list[float]:
    """Share of the raw bonus paid in each tenth of an episode, over all episodes; empty if nothing was paid."""
    sums = np.zeros(parts)
    for bonuses in episodes:  # a step that lies in two tenths counts in both, by its parts
        paid = np.concatenate([[0.0], np.abs(bonuses).cumsum()])
        ends = np.linspace(0, len(bonuses), parts + 1)
        sums += np.diff(np.interp(ends, np.arange(len(paid)), paid))
    total = sums.sum()
    shares: list[float] = (sums / total).tolist() if total > 0 else []
    return shares


def early_share(episodes: Sequence[Sequence[float]]) -> float | None:
    """Share of the raw bonus paid in the first steps of the long episodes."""
    long = [[abs(bonus) for bonus in bonuses] for bonuses in episodes if len(bonuses) >= LONG]
    total = sum(map(sum, long))
    return sum(sum(bonuses[:EARLY]) for bonuses in long) / total if total > 0 else None
