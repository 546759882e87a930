from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from critex.bonus import BatchMomentScaler, NoScaler, WelfordScaler

FAST = settings(max_examples=50, deadline=None)
bonuses = st.lists(st.floats(0, 1e3), min_size=1, max_size=40)


def test_the_numbers_of_algorithm_1():
    scaler = WelfordScaler()
    scaled = scaler(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    assert scaler.moments == [2.0, 2.0, 3.0]
    np.testing.assert_allclose(scaled, [1.0, 2 / 0.5, 3 / np.std([1, 2, 3])], rtol=1e-14)
    np.testing.assert_allclose(float(scaled[2]), 3.6742, atol=1e-4)
    np.testing.assert_allclose(scaler.std(), 0.8165, atol=1e-4)


@FAST
@given(values=bonuses)
def test_welford_equals_numpy_at_every_prefix(values):
    scaled = WelfordScaler()(torch.tensor(values, dtype=torch.float64)).numpy()
    for i, value in enumerate(values):
        seen = np.array(values[: i + 1])
        if np.std(seen) > 1e-6 * np.mean(seen):
            np.testing.assert_allclose(scaled[i], value / np.std(seen), rtol=1e-6)
        elif np.ptp(seen) == 0:
            assert scaled[i] == value


@FAST
@given(values=bonuses, warmup=st.integers(0, 5), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_a_vector_gives_exactly_what_single_calls_give(values, warmup, dtype):
    whole, single = WelfordScaler(warmup), WelfordScaler(warmup)
    b = torch.tensor(values, dtype=dtype)
    assert torch.equal(whole(b), torch.cat([single(x[None]) for x in b]))
    assert all(torch.equal(x, y) for x, y in zip(whole.buffers(), single.buffers(), strict=True))


def test_a_rollout_is_taken_in_row_order():
    b = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(WelfordScaler()(b), WelfordScaler()(b.flatten()).reshape(5, 3))


def test_without_variance_a_bonus_stays_as_it_is():
    scaler = WelfordScaler()
    assert scaler.scale(torch.tensor([7.0])).tolist() == [7.0]
    assert scaler(torch.tensor([3.0, 3.0, 3.0 + 1e-12])).tolist() == [3.0, 3.0, 3.0]
    assert WelfordScaler()(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("d", [2, 256, 4096])
def test_the_round_off_of_single_precision_is_no_variance(d):
    phi = torch.nn.functional.normalize(torch.rand(200, d, generator=torch.Generator().manual_seed(0)))
    bonus = phi.double().square().sum(-1).sqrt()  # the first bonuses of 200 memories
    assert bonus.std() > 0
    torch.testing.assert_close(WelfordScaler()(bonus), bonus)
    torch.testing.assert_close(BatchMomentScaler()(bonus[:, None])[:, 0], bonus)


def test_warmup_keeps_the_second_sample_from_spiking():
    b = torch.tensor([1.0, 1.001, 2.0], dtype=torch.float64)
    assert WelfordScaler()(b)[1] > 1000
    scaled = WelfordScaler(warmup=2)(b)
    assert scaled[:2].tolist() == [1.0, 1.001]
    np.testing.assert_allclose(float(scaled[2]), 2 / np.std(b.numpy()), rtol=1e-12)
    with pytest.raises(ValueError, match="warmup must be"):
        WelfordScaler(warmup=-1)


@pytest.mark.parametrize("value", [0.01, 1.0, 300.0])
def test_the_counting_of_the_released_code_on_constant_batches(value):
    scaler = BatchMomentScaler(count_rows=True)
    for _ in range(4):
        scaled = scaler(torch.full((80, 8), value, dtype=torch.float64))
    np.testing.assert_allclose(scaler.std(), np.sqrt(8) * 7 * value, rtol=1e-6)
    np.testing.assert_allclose(scaled, 0.050508, atol=1e-6)


def test_the_counting_of_the_released_code_on_random_batches():
    scaler = BatchMomentScaler(count_rows=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        scaler(1.0 + 0.1 * torch.randn(80, 8, generator=generator))
    np.testing.assert_allclose(scaler.std(), np.sqrt(8 * (0.1**2 + 49)), rtol=1e-3)


def test_the_formula_of_the_released_code_step_by_step():
    scaler, m2, count, total = BatchMomentScaler(count_rows=True), 0.0, 1e-8, 0.0
    for seed in range(3):
        b = np.random.default_rng(seed).random((5, 3))
        n, m = 5, b.sum() / 5
        m2 += ((b - m) ** 2).sum() + count * n / (count + n) * (m - total / count) ** 2
        count, total = count + n, total + b.sum()
        np.testing.assert_allclose(scaler(torch.from_numpy(b)), b / np.sqrt(m2 / count), rtol=1e-12)


@FAST
@given(seed=st.integers(0, 10**6), batches=st.integers(1, 5))
def test_counted_truly_it_is_the_standard_deviation(seed, batches):
    scaler = BatchMomentScaler(count_rows=False)
    b = torch.from_numpy(np.random.default_rng(seed).random((batches, 6, 4)))
    for i, batch in enumerate(b):
        scaled = scaler(batch)
        np.testing.assert_allclose(scaled, batch / np.std(b[: i + 1].numpy()), rtol=1e-10)


@pytest.mark.parametrize("value", [5.0, 0.1, 1 / 3])
def test_constant_batches_counted_truly_stay_as_they_are(value):
    """Also where the mean of equal numbers is not that number: its round-off is no standard deviation."""
    b = torch.full((80, 8), value, dtype=torch.float64)
    scaler = BatchMomentScaler(count_rows=False)
    scaler(b)
    assert torch.equal(scaler(b), b)


def test_no_scaler():
    b = torch.tensor([1.0, 5.0])
    assert torch.equal(NoScaler()(b), b) and torch.equal(NoScaler().scale(b), b)


@pytest.mark.parametrize(
    "make", [WelfordScaler, BatchMomentScaler, lambda: BatchMomentScaler(count_rows=True), NoScaler]
)
def test_state_scale_and_bad_input(make):
    b = torch.rand(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scaler, twin = make(), make()
    scaler(b)
    before = copy.deepcopy(scaler.state_dict())
    torch.testing.assert_close(scaler.scale(b), b / scaler.std())
    if not isinstance(scaler, NoScaler):
        with pytest.raises(ValueError, match="bonuses must be finite, got 1 NaN or infinite of 2"):
            scaler(torch.tensor([1.0, float("nan")]))
    assert all(torch.equal(before[name], value) for name, value in scaler.state_dict().items())
    twin.load_state_dict(before)
    assert torch.equal(twin(b), scaler(b))
