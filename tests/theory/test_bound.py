"""The theorem's numbers and the slopes."""

import math

import numpy as np
import pytest

from critex.theory import bound, slope
from critex.theory.slopes import checkpoints


def test_theorem_alpha_by_hand():
    inside = 4 * math.log(1 + 100 * math.log(2) / 0.5) - math.log(0.1)
    assert bound.theorem_alpha(4, 100, 2, 0.5, 0.1) == pytest.approx(math.sqrt(2 * inside) + math.sqrt(0.5))


def test_terms_by_hand():
    m = np.array([10.0, 100.0])
    np.testing.assert_allclose(bound.exploration_term(2.0, 3, 5, m), 10 * np.sqrt(3 * m * np.log(1 + m / 3)))
    np.testing.assert_allclose(bound.noise_term(5, m, 0.1), 5 * np.sqrt(5 * m * math.log(10)))
    np.testing.assert_allclose(bound.potential_bound(3, m, 2.0), 6 * np.log(1 + m / 6))
    one = bound.network_term(2.0, 3, 5, 100, actions=2, width=64, layers=2, sigma=0.1)
    logs = math.log(64) * math.log(10) * math.log(100 * 2 / 0.1)
    assert one == pytest.approx(5 * 8 * 3**2.5 * 100 * math.sqrt(logs) * 2.0 / 64 ** (1 / 6))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_slope_finds_the_power(power):
    at = checkpoints(1000)
    assert at[0] == 1
    assert at[-1] == 1000
    scale = np.random.default_rng(0).uniform(1, 2, (6, 1))
    found = slope(at, scale * at**power)
    assert found.value == pytest.approx(power, abs=1e-9)
    assert found.low == pytest.approx(power, abs=1e-9)
    if power == 0:
        assert tuple(found) == (0, 0, 0)  # exactly, or a table would print −0.00


def test_slope_interval_covers_seeds_that_differ():
    at = checkpoints(1000)
    curves = np.stack([at**p for p in (0.3, 0.4, 0.6, 0.7)])
    found = slope(at, curves)
    assert found.low < found.value < found.high
    assert found.low >= 0.3
    assert found.high <= 0.7 + 1e-9
    assert math.isnan(slope(at, curves[:1]).low)
