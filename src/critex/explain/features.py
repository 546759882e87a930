"""When the bonus is paid within an episode."""

from __future__ import annotations

from collections.abc import Sequence

from critex.explorers.diagnostics import EARLY, LONG


def bonus_shares(episodes: Sequence[Sequence[float]], parts: int = 10) -> list[float]:
    """Share of the raw bonus paid in each tenth of an episode, over all episodes; empty if nothing was paid."""
    sums = [0.0] * parts
    for bonuses in episodes:
        for t, bonus in enumerate(bonuses):
            sums[t * parts // len(bonuses)] += abs(bonus)
    total = sum(sums)
    return [value / total for value in sums] if total > 0 else []


def early_share(episodes: Sequence[Sequence[float]]) -> float | None:
    """Share of the raw bonus paid in the first steps of the long episodes."""
    long = [[abs(bonus) for bonus in bonuses] for bonuses in episodes if len(bonuses) >= LONG]
    total = sum(map(sum, long))
    return sum(sum(bonuses[:EARLY]) for bonuses in long) / total if total > 0 else None
