"""Statistics against answers worked out by hand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from critex.results.stats import (
    PairedScores,
    aggregate,
    common_grid,
    final_evaluations,
    final_score,
    improvement_probability,
    iqm,
    iqm_rpi,
    mean_rpi,
    on_grid,
    relative,
    rpi,
    stratified,
    summarise,
)  # fmt: skip

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


def test_a_seed_that_is_carried_keeps_its_last_value() -> None:
    grid = np.array([10.0, 20, 30])
    early, late = (
        ([4, 8], [0, 6]),
        ([10, 20, 30], [1, 1, 1]),
    )  # the first bin holds both values of the first seed
    curve = aggregate([early, late], grid, [True, False])
    np.testing.assert_array_equal(curve.seeds, [[3, 6, 6], [1, 1, 1]])
    assert curve.n.tolist() == [2, 2, 2] and curve.fewest == 2
    assert aggregate([early, late], grid).fewest == 1
    assert aggregate([early], grid).fewest == 1, "where no seed is left there is no mean"


def test_seeds_that_agree_have_a_spread_of_exactly_zero() -> None:
    series = [([1], [0.99])] * 3  # the mean of three 0.99 is not 0.99
    assert aggregate(series, np.array([1.0])).std.tolist() == [0]


# Against a baseline ---------------------------------------------------------------------------------------


def paired(*tasks: tuple[list[float], list[float]]) -> list[PairedScores]:
    return [(np.array(base, dtype=float), np.array(ours, dtype=float)) for base, ours in tasks]


def test_the_last_tenth_of_the_evaluations() -> None:
    assert final_evaluations(range(40)) == 37.5  # 36 … 39
    assert final_evaluations([1, 2, 6]) == 6  # at least one
    assert final_evaluations(range(11)) == 9.5  # ⌈1.1⌉ = 2
    assert math.isnan(final_evaluations([]))


def test_rpi_by_hand() -> None:
    assert rpi(150, 100) == 50
    assert rpi(0.77, -0.31) == pytest.approx(348.39, abs=0.005)  # by the magnitude of a negative base
    assert math.isnan(rpi(1, 0))
    assert math.isnan(rpi(0.99, -0.0023))  # +43,000 % would say nothing
    assert rpi(-0.0023, 0.99) == pytest.approx(-100.2, abs=0.05)  # ours may be small


def test_interquartile_mean_by_hand() -> None:
    assert iqm([100, 1, 2, 3, -50]) == 2  # ⌊5/4⌋ = 1 is cut off at either end
    assert iqm([7, 1, 3]) == pytest.approx(11 / 3)  # nothing to cut
    np.testing.assert_array_equal(iqm([[4, 1, 2, 3], [0, 0, 8, 8]]), [2.5, 4])


def test_probability_of_improvement_by_hand() -> None:
    # Pairs of the first task: 2>1, 2=2, 3>1, 3>2; of the second 0 of 1.
    tasks = paired(([1, 2], [2, 3]), ([5], [4]))
    assert improvement_probability(tasks[:1]) == 3.5 / 4
    assert improvement_probability(tasks) == pytest.approx((3.5 / 4 + 0) / 2)


def test_improvements_over_tasks_by_hand() -> None:
    tasks = paired(([1, 3], [3, 5]), ([-4, -4, -4], [-2, -2, 4]))
    np.testing.assert_allclose(relative(*tasks[0]), [100, 100])
    np.testing.assert_allclose(relative(*tasks[1]), [50, 50, 200])
    assert mean_rpi(tasks) == pytest.approx((100 + 100) / 2)
    assert iqm_rpi(tasks) == pytest.approx((50 + 100 + 100) / 3)  # of 50, 50, 100, 100, 200
    for total in mean_rpi, iqm_rpi:
        assert math.isnan(total([*tasks, *paired(([0.004, -0.004], [0.8, 0.9]))]))  # a base near 0
        assert math.isnan(total([*tasks * 4, *paired(([0, 0], [0, 0]))]))  # not the best of many


@given(
    st.lists(st.tuples(st.floats(11, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=9),
    st.floats(0.01, 100),
)
def test_improvements_have_no_unit(pairs: list[tuple[float, float]], unit: float) -> None:
    base, ours = np.array(pairs).T
    expected = rpi(ours.mean(), base.mean())
    for scale in (1.0, unit):
        assert mean_rpi([(scale * base, scale * ours)]) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert relative(base, ours).min() - 1e-9 <= iqm_rpi([(base, ours)]) <= relative(base, ours).max() + 1e-9


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=9))
def test_either_of_two_is_the_better_one(pairs: list[tuple[int, int]]) -> None:
    base, ours = np.array(pairs, dtype=float).T
    there, back = improvement_probability([(base, ours)]), improvement_probability([(ours, base)])
    assert there + back == pytest.approx(1)
    assert improvement_probability([(base, base)]) == 0.5


def test_strata_are_drawn_by_themselves_and_pairs_together() -> None:
    # One task whose seeds improve by 0 or 100: k of 20 draws improve, k ~ B(20, ½), as in the binomial test above.
    single = paired(([1.0] * 20, [1.0] * 10 + [2.0] * 10))
    low, high = binom.ppf([0.025, 0.975], 20, 0.5) / 20 * 100
    drawn = stratified(mean_rpi, single, resamples=50_000)
    assert (drawn.value, drawn.low, drawn.high) == pytest.approx((50, low, high))
    # Base and ours vary together, and every pair improves by 1: nothing is left of the spread of either.
    together = stratified(
        lambda tasks: (tasks[0][1] - tasks[0][0]).mean(-1), paired(([1, 50, 900], [2, 51, 901]))
    )
    assert (together.low, together.high) == (1, 1)
    # Two tasks of two seeds: the mean improvement is a quarter of B(4, ½); 1/16 > 2.5 % reaches both ends.
    two = stratified(mean_rpi, paired(([1, 1], [1, 2]), ([1, 1], [1, 2])))
    assert (two.value, two.low, two.high) == (50, 0, 100)


def test_what_few_pairs_cannot_tell() -> None:
    one = stratified(mean_rpi, paired(([1, 2], [2, 4]), ([1], [2])))
    assert one.value == 100
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    assert math.isnan(stratified(mean_rpi, paired(([1, -1], [2, 4]))).low)  # no RPI over a base of 0
    with warnings.catch_warnings(action="error"):
        some = stratified(mean_rpi, paired(([0, 0.5, 0.7], [0.8, 0.9, 0.7])))
    assert some.value == pytest.approx(100) and math.isnan(some.low)  # the base of some draws is 0


def test_the_stratified_bootstrap_is_seeded() -> None:
    tasks = paired(([1, 2, 4], [2, 9, 4]), ([3, 1, 1], [3, 2, 5]))
    assert stratified(iqm_rpi, tasks, resamples=99) == stratified(iqm_rpi, tasks, resamples=99)
    assert stratified(iqm_rpi, tasks, resamples=99, seed=1) != stratified(
        iqm_rpi, tasks, resamples=99, seed=2
    )
