"""Statistics against answers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from critex.report.stats import aggregate, common_grid, final_score, on_grid, summarise

nan = math.nan


def test_final_score_is_the_mean_of_the_last_hundred() -> None:
    assert final_score(range(250)) == 199.5  # 150 … 249
    assert final_score([1, 2, 6]) == 3
    assert math.isnan(final_score([]))


def test_summary_by_hand() -> None:
    s = summarise([2, 4, 4, 6])
    assert (s.mean, s.n) == (4, 4)
    assert s.std == pytest.approx(math.sqrt(8 / 3))  # Σ(x − 4)² = 8, over n − 1


def test_two_seeds_bootstrap_to_their_extremes() -> None:
    # Resampled means are 0, ½, 1 with chances ¼, ½, ¼: the quantiles 2.5 % and 97.5 % are 0 and 1.
    s = summarise([0, 1])
    assert (s.low, s.high) == (0, 1)


def test_bootstrap_of_zeros_and_ones_is_binomial() -> None:
    scores = [0] * 12 + [1] * 8
    s = summarise(scores, resamples=50_000)
    low, high = binom.ppf([0.025, 0.975], 20, 0.4) / 20
    assert (s.low, s.high) == pytest.approx((low, high))


def test_bootstrap_is_seeded() -> None:
    scores = [0.1, 0.7, 0.4, 0.9, 0.3]
    assert summarise(scores) == summarise(scores)
    assert summarise(scores, resamples=99, seed=1) != summarise(scores, resamples=99, seed=2)


def test_what_few_seeds_cannot_tell() -> None:
    one = summarise([3.0])
    assert (one.mean, one.n) == (3, 1)
    assert all(map(math.isnan, (one.std, one.low, one.high)))
    none = summarise([])
    assert none.n == 0
    assert math.isnan(none.mean)
    assert math.isnan(summarise([1, nan]).low)


@given(st.floats(-1e6, 1e6), st.integers(2, 7))
def test_equal_seeds_have_no_spread(value: float, n: int) -> None:
    s = summarise([value] * n, resamples=50)
    assert s.std == 0
    assert (s.low, s.high) == pytest.approx((value, value))


def test_few_steps_are_the_grid_themselves() -> None:
    assert common_grid([[100, 300], [100, 200]]).tolist() == [100, 200, 300]
    assert common_grid([]).size == 0


def test_many_steps_are_binned_up_to_the_last() -> None:
    grid = common_grid([np.arange(1, 1001)], points=4)
    assert grid.tolist() == [250, 500, 750, 1000]


def test_a_bin_holds_the_mean_since_the_point_before() -> None:
    grid = np.array([10.0, 20.0])
    # 10 belongs to the first bin, 11 to the second: bins are open to the left.
    assert on_grid([1, 10, 11, 20], [1, 3, 5, 9], grid).tolist() == [2, 7]


def test_gaps_are_interpolated_and_ends_left_unknown() -> None:
    grid = np.array([10.0, 20, 30, 40, 50])
    np.testing.assert_array_equal(on_grid([20, 40], [1, 5], grid), [nan, 1, 3, 5, nan])
    np.testing.assert_array_equal(on_grid([10, 20, 30], [1, math.inf, 3], grid[:3]), [1, 2, 3])
    np.testing.assert_array_equal(on_grid([], [], grid[:2]), [nan, nan])


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=300, unique=True), st.integers(1, 50))
def test_every_report_falls_into_the_grid(steps: list[int], points: int) -> None:
    steps = sorted(steps)
    grid = common_grid([steps], points)
    assert grid.size <= max(points, 1)
    # The last bin is never empty, and a constant stays that constant wherever anything is known.
    curve = on_grid(steps, np.full(len(steps), 2.5), grid)
    assert curve[-1] == 2.5
    assert np.all(np.isnan(curve) | (curve == 2.5))


def test_aggregate_over_the_seeds_that_got_there() -> None:
    grid = np.array([10.0, 20, 30])
    curve = aggregate([([10, 20, 30], [0, 2, 4]), ([10, 20], [2, 2])], grid)
    np.testing.assert_array_equal(curve.seeds, [[0, 2, 4], [2, 2, nan]])
    np.testing.assert_array_equal(curve.mean, [1, 2, 4])
    np.testing.assert_allclose(curve.std, [math.sqrt(2), 0, nan])
    np.testing.assert_array_equal(curve.n, [2, 2, 1])


def test_seeds_that_agree_have_a_spread_of_exactly_zero() -> None:
    series = [([1], [0.99])] * 3  # the mean of three 0.99 is not 0.99
    assert aggregate(series, np.array([1.0])).std.tolist() == [0]
