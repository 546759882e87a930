"""Growth of regret: its slope on a log-log plot, with a bootstrap interval over seeds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from critex.theory.problems import Array, Integers


class Slope(NamedTuple):
    """p in R_K ∝ K^p, and the ends of its 95 % interval (NaN with a single seed)."""

    value: float
    low: float
    high: float


def checkpoints(episodes: int) -> Integers:
    """Up to 60 episodes from 1 to the last, evenly spaced on a log scale and without repeats, [G]."""
    return np.unique(np.geomspace(1, episodes, 60).round().astype(np.int64))


def slope(episodes: NDArray[Any], regret: Array) -> Slope:
    """Least-squares slope of log R̄_K against log K over the last decade of episodes.

    R̄ is the mean over seeds of the cumulative regret [S, G] at the episodes [G]. The interval is the percentile
    bootstrap over seeds. A regret that no longer grows has slope 0, a linear one slope 1. NaN where R̄ ≤ 0.
    """
    late = episodes >= episodes[-1] / 10
    x = np.log(episodes[late]) - np.log(episodes[late]).mean()
    curves = regret[:, late]

    def fit(mean: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            growth = np.log(mean) - np.log(mean[..., :1])  # exactly 0 where nothing grows
            return np.asarray(growth @ x / (x @ x))

    def of_seeds(drawn: NDArray[Any], axis: int = -1) -> Array:
        return fit(curves[drawn.astype(np.int64)].mean(-2))

    value = float(fit(curves.mean(0)))
    if len(regret) < 2 or not np.isfinite(value):
        return Slope(value, np.nan, np.nan)
    interval = stats.bootstrap(
        (np.arange(len(regret)),),
        of_seeds,
        n_resamples=2000,
        method="percentile",
        vectorized=True,
        axis=-1,
        random_state=np.random.default_rng(0),  # SciPy before 1.15 does not know it as rng
    ).confidence_interval
    return Slope(value, float(interval.low), float(interval.high))
