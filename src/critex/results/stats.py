"""Statistics over seeds: pure functions, each with its own seeded generator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats  # type: ignore[import-untyped]

Floats = NDArray[np.float64]

LAST_EPISODES = 100
LAST_EVALUATIONS = 0.1
GRID_POINTS = 100
LARGEST = 1e150  # its square is finite


@dataclass(frozen=True)
class Summary:
    """Summary statistics over seeds; NaN where one seed is not enough."""

    mean: float
    std: float
    """Sample standard deviation, √(Σ(x − x̄)² / (n − 1))."""
    low: float
    high: float
    """Bootstrap interval of the mean."""
    n: int
    """Number of seeds."""


def final_score(returns: ArrayLike, last: int = LAST_EPISODES) -> float:
    """Mean of the last `last` returns [E] of one seed, or of all if there are fewer."""
    tail = np.asarray(returns, dtype=np.float64)[-last:]
    return float(tail.mean()) if tail.size else math.nan


def final_evaluations(returns: ArrayLike, share: float = LAST_EVALUATIONS) -> float:
    """Mean of the last ⌈share·E⌉ evaluations [E] of one seed."""
    values = np.asarray(returns, dtype=np.float64)
    return final_score(values, math.ceil(share * values.size)) if values.size else math.nan


def summarise(scores: ArrayLike, resamples: int = 10_000, seed: int = 0) -> Summary:
    """Mean, sample standard deviation and bootstrap interval of one score per seed, [S].

    The interval is the percentile bootstrap: means of `resamples` draws of S scores with replacement, and of
    these the central 95 %. It never extends beyond the observed scores, so with few seeds it is too narrow rather
    than too wide.
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.size == 0:
        return Summary(math.nan, math.nan, math.nan, math.nan, 0)
    mean = float(x.mean())
    if x.size == 1 or not np.isfinite(x).all():
        return Summary(mean, math.nan, math.nan, math.nan, x.size)
    rng = np.random.default_rng(seed)  # SciPy before 1.15 knows it only as random_state
    interval = stats.bootstrap(
        (x,), np.mean, n_resamples=resamples, method="percentile", random_state=rng
    ).confidence_interval
    std = float(x.std(ddof=1)) if np.ptp(x) > 0 else 0.0  # exactly 0, without the round-off of the mean
    return Summary(mean, std, float(interval.low), float(interval.high), x.size)


def rpi(ours: float, base: float) -> float:
    """Relative performance improvement in percent, 100·(ours − base)/|base|; NaN for a base near 0."""
    return float(relative(np.array([base]), np.array([ours]))[0])


PairedScores = tuple[Floats, Floats]
"""(baseline, method) on one task, [..., S] each: the scores of the same seeds in the same order."""


def relative(base: Floats, ours: Floats) -> Floats:
    """100·(x_s − b_s)/|b̄| for each seed s, b̄ the mean of the base; their mean is the RPI: [..., S] → [..., S].

    NaN where |b̄| is below a hundredth of |x̄|: a percentage of next to nothing says nothing.
    """
    size = abs(base.mean(-1, keepdims=True))
    near_zero = (size == 0) | (size < abs(ours.mean(-1, keepdims=True)) / 100)
    return np.asarray(100 * (ours - base) / np.where(near_zero, math.nan, size))


def mean_rpi(tasks: Sequence[PairedScores]) -> Floats:
    """Mean over tasks of their RPI: [..., S_t] → [...]."""
    return np.asarray(np.mean([relative(b, x).mean(-1) for b, x in tasks], axis=0))


def iqm_rpi(tasks: Sequence[PairedScores]) -> Floats:
    """Interquartile mean over the seeds of all tasks of their `relative` improvements: [..., S_t] → [...]."""
    return iqm(np.concatenate([relative(b, x) for b, x in tasks], axis=-1))


def iqm(scores: ArrayLike) -> Floats:
    """Interquartile mean: the mean after dropping ⌊n/4⌋ of n scores at either end, [..., n] → [...]; NaN if any is NaN."""
    x = np.sort(np.asarray(scores, dtype=np.float64), axis=-1)
    cut = x.shape[-1] // 4
    unknown = np.isnan(x).any(-1)  # sorted last, they would be dropped as if they were the best
    return np.where(unknown, math.nan, x[..., cut : x.shape[-1] - cut].mean(-1))


def improvement_probability(tasks: Sequence[PairedScores]) -> Floats:
    """Mean over tasks of P(x > b) + ½P(x = b), over all pairs of a run and a baseline run: → [...]."""
    wins = [
        ((x[..., :, None] > b[..., None, :]) + 0.5 * (x[..., :, None] == b[..., None, :])).mean((-2, -1))
        for b, x in tasks
    ]
    return np.asarray(np.mean(wins, axis=0))


@dataclass(frozen=True)
class Estimate:
    """A number and its bootstrap interval; the ends are NaN if some task has only one seed, or if the number is undefined
    for some draw."""

    value: float
    low: float
    high: float


def stratified(
    statistic: Callable[[Sequence[PairedScores]], Floats],
    tasks: Sequence[PairedScores],
    resamples: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """The statistic of the tasks, and its percentile bootstrap interval of 95 %.

    Tasks are strata: each task resamples its own S_t seeds, and a resampled seed contributes both of its scores, so
    pairs stay paired.
    """
    value = float(statistic(tasks))
    sizes = [x.shape[-1] for _, x in tasks]
    if min(sizes) < 2 or math.isnan(value):
        return Estimate(value, math.nan, math.nan)

    def of_seeds(*drawn: NDArray[Any], axis: int = -1) -> Floats:
        rows = [seeds.astype(np.int64) for seeds in drawn]
        return statistic([(b[i], x[i]) for (b, x), i in zip(tasks, rows, strict=True)])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        interval = stats.bootstrap(
            tuple(np.arange(size) for size in sizes),
            of_seeds,
            n_resamples=resamples,
            method="percentile",
            vectorized=True,
            axis=-1,
            random_state=np.random.default_rng(seed),
        ).confidence_interval
    return Estimate(value, float(interval.low), float(interval.high))


def common_grid(steps: Sequence[ArrayLike], points: int = GRID_POINTS) -> Floats:
    """Steps at which curves can be compared, [G], from the steps [E_s] at which each seed reported.

    If there are few distinct steps, as for evaluations, they are the grid. Otherwise the grid has `points` equal
    bins up to the last step, each identified by its right end.
    """
    union = np.unique(np.concatenate([np.asarray(s, dtype=np.float64) for s in steps] or [np.empty(0)]))
    if union.size <= points:
        return union
    return np.linspace(union[-1] / points, union[-1], points)


def on_grid(steps: ArrayLike, values: ArrayLike, grid: Floats, carry: bool = False) -> Floats:
    """The curve of one seed on the grid: [E], [E], [G] → [G].

    The value at grid[i] is the mean of the values reported in (grid[i−1], grid[i]]. Empty bins between two others
    are interpolated linearly; before the first and after the last value the curve is NaN, or with `carry` it stays
    at the last value. Values that are not finite, or whose sums might not be, are ignored.
    """
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    usable = np.abs(y) < LARGEST
    x, y = x[usable], y[usable]
    if not x.size:
        return np.full(grid.shape, math.nan)
    index = np.searchsorted(grid, x).clip(max=grid.size - 1)  # the last edge may round to below the last step
    count = np.bincount(index, minlength=grid.size)
    total = np.bincount(index, weights=y, minlength=grid.size)
    filled = count > 0
    right = y[-1] if carry else math.nan
    return np.interp(grid, grid[filled], total[filled] / count[filled], left=math.nan, right=right)


@dataclass(frozen=True)
class Curve:
    """Seeds on a common grid, with their mean and spread."""

    grid: Floats  # [G]
    seeds: Floats  # [S, G]
    mean: Floats  # [G], over the seeds with a value there
    std: Floats  # [G], sample standard deviation; NaN where fewer than two seeds have a value
    n: NDArray[Any]  # [G], number of seeds with a value

    @property
    def fewest(self) -> int:
        """The smallest number of seeds behind the mean, once all have begun: fewer than all if some end early."""
        begun = self.n[self.n.argmax() :]
        return int(begun[begun > 0].min(initial=begun[0]))


def aggregate(
    series: Sequence[tuple[ArrayLike, ArrayLike]], grid: Floats, carry: Sequence[bool] | None = None
) -> Curve:
    """Mean and spread over seeds of (steps [E_s], values [E_s]) on the grid [G]; see `on_grid`, also for `carry` [S]."""
    carry = carry or [False] * len(series)
    curves = [on_grid(*one, grid, kept) for one, kept in zip(series, carry, strict=True)]
    seeds = np.array(curves).reshape(-1, grid.size)
    known = ~np.isnan(seeds)
    n = known.sum(axis=0)
    mean = np.full(grid.shape, math.nan)
    np.divide(np.where(known, seeds, 0).sum(axis=0), n, out=mean, where=n > 0)
    same = (seeds == seeds.max(axis=0, where=known, initial=-math.inf)) | ~known
    squares = np.where(known & ~same.all(axis=0), seeds - mean, 0) ** 2  # exactly 0 where all are equal
    variance = np.full(grid.shape, math.nan)
    np.divide(squares.sum(axis=0), n - 1, out=variance, where=n > 1)
    return Curve(grid, seeds, mean, np.sqrt(variance), n)
