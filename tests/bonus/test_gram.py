"""Gram against references: numpy, extended precision, closed forms."""

from __future__ import annotations

import copy
import io
import pickle
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from critex.bonus import Gram

FAST = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rows(seed: int, n: int, d: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d)))


def reference(phi: torch.Tensor, ridge: float) -> np.ndarray:
    """Sequential bonuses in extended precision: the dual recursion, row after row."""
    x = phi.numpy().astype(np.longdouble)
    n = len(x)
    kernel = x @ x.T / np.longdouble(ridge)
    lower = np.zeros((n, n), dtype=np.longdouble)
    bonus = np.zeros(n, dtype=np.longdouble)
    for t in range(n):
        for j in range(t):
            lower[t, j] = (kernel[t, j] - lower[t, :j] @ lower[j, :j]) / lower[j, j]
        bonus[t] = kernel[t, t] - lower[t, :t] @ lower[t, :t]
        lower[t, t] = np.sqrt(1 + bonus[t])
    return bonus


def direct(phi: torch.Tensor, ridge: float) -> np.ndarray:
    """The paper's listing: solve with A at each step."""
    a, bonus = ridge * np.eye(phi.shape[-1]), []
    for x in phi.numpy():
        bonus.append(x @ np.linalg.solve(a, x))
        a += np.outer(x, x)
    return np.array(bonus)


def bound(phi: torch.Tensor, ridge: float) -> np.ndarray:
    """100·ε·(1 + Σ‖φ‖²/λ), with the sum up to and including each row."""
    mass = np.cumsum((phi.numpy() ** 2).sum(-1))
    return 100 * np.finfo(np.float64).eps * (1 + mass / ridge)


def one_by_one(gram: Gram, phi: torch.Tensor) -> torch.Tensor:
    return torch.cat([gram.observe(x[None]) for x in phi])


def made_dense(gram: Gram) -> Gram:
    """The same memory, its base turned into matrices: the primal form from the first row on."""
    gram.merge(torch.zeros(gram.memories, gram.dim, gram.dim))
    return gram


# -- the numbers of the forms --------------------------------------------------------------------------------------


@FAST
@given(
    seed=st.integers(0, 10**6),
    d=st.sampled_from([1, 2, 7, 33, 70, 257, 1100]),
    n=st.integers(1, 70),
    exponent=st.integers(-8, 3),
    ridge=st.sampled_from([0.1, 1.0, 10.0]),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_all_forms_equal_the_reference_within_the_bound(seed, d, n, exponent, ridge):
    phi = rows(seed, n, d, 10.0**exponent)
    expected, tolerance = reference(phi, ridge), bound(phi, ridge)
    results = {
        "dual, step by step": one_by_one(Gram(d, ridge=ridge), phi),
        "dual, rollout": Gram(d, ridge=ridge).observe_rollout(phi[:, None])[:, 0],
        "primal, step by step": one_by_one(made_dense(Gram(d, ridge=ridge)), phi),
        "primal, rollout": made_dense(Gram(d, ridge=ridge)).observe(phi),
    }
    for form, bonus in results.items():
        error = np.abs(bonus.numpy() - expected) / expected
        assert (error <= tolerance).all(), (form, float((error / tolerance).max()))


@pytest.mark.parametrize("d", [3, 64, 130])
def test_a_thousand_updates_equal_direct_inversion(d):
    phi = rows(0, 1000, d)
    gram = Gram(d)
    bonus = one_by_one(gram, phi)
    np.testing.assert_allclose(bonus, direct(phi, 1.0), rtol=1e-9)
    inverse = np.linalg.inv(np.eye(d) + phi.numpy().T @ phi.numpy())
    assert np.abs(gram.inverse()[0].numpy() - inverse).max() < 1e-8


@pytest.mark.parametrize(("ridge", "expected"), [(0.1, [10, 1 / 1.1, 1 / 2.1]), (1.0, [1, 1 / 2, 1 / 3])])
def test_repeats_of_a_unit_feature_shrink_as_one_over_lambda_plus_n(ridge, expected):
    phi = torch.tensor([[0.6, 0.8, 0.0]], dtype=torch.float64)
    gram = Gram(3, ridge=ridge)
    bonus = [float(gram.observe(phi)) for _ in range(500)]
    np.testing.assert_allclose(bonus[:3], expected, rtol=1e-12)
    np.testing.assert_allclose(bonus, 1 / (ridge + np.arange(500)), rtol=1e-11)


def test_measuring_after_the_update_gives_b_over_one_plus_b():
    phi = rows(1, 40, 6)
    gram = Gram(6, ridge=0.3)
    for x in phi:
        before = gram.observe(x[None])
        torch.testing.assert_close(gram.quadratic(x[None]), before / (1 + before), rtol=1e-12, atol=0)


@FAST
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 40),
    n=st.integers(1, 120),
    scale=st.sampled_from([1e-8, 1.0, 1e3]),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_bonus_is_never_negative_and_a_zero_row_earns_nothing(seed, d, n, scale):
    phi = rows(seed, n, d, scale)
    phi[:: max(1, n // 3)] = phi[0].clone()
    phi = torch.cat([phi, torch.zeros(1, d)])
    gram = Gram(d, ridge=1e-3)
    bonus = torch.cat([gram.observe(phi), one_by_one(gram, phi), gram.quadratic(phi)])
    assert (bonus >= 0).all()
    assert bonus[n] == bonus[2 * n + 1] == bonus[-1] == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_features_beyond_the_precision_are_clamped_counted_and_warned_of():
    phi = rows(0, 300, 4, 1e8)
    gram = Gram(4, ridge=1e-8)
    bonus = torch.cat([one_by_one(gram, phi), gram.observe(phi)])
    assert (bonus >= 0).all() and bonus.isfinite().all()
    assert int(gram.form.counts[0, 2]) > 0
    with pytest.warns(RuntimeWarning, match="scale phi down, or raise ridge"):
        gram.observe(phi)


def test_ordinary_features_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Gram(64).observe(rows(0, 1000, 64))


@FAST
@given(seed=st.integers(0, 10**6), d=st.integers(1, 30), n=st.integers(1, 100))
def test_the_matrix_does_not_depend_on_the_order_and_is_symmetric_to_the_bit(seed, d, n):
    phi = rows(seed, n, d)
    shuffled = phi[torch.randperm(n, generator=torch.Generator().manual_seed(seed))]
    a, b = Gram(d, ridge=0.5), Gram(d, ridge=0.5)
    a.observe(phi)
    one_by_one(b, shuffled)
    torch.testing.assert_close(a.matrix(), b.matrix(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        a.matrix()[0], 0.5 * torch.eye(d).double() + phi.T @ phi, rtol=1e-12, atol=1e-12
    )
    for matrix in (a.matrix()[0], a.inverse()[0], b.matrix()[0], b.inverse()[0]):
        assert torch.equal(matrix, matrix.T)
    torch.testing.assert_close(a.inverse() @ a.matrix(), torch.eye(d).double()[None], rtol=0, atol=1e-9)


@FAST
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 20),
    n=st.integers(1, 80),
    ridge=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_elliptical_potential(seed, d, n, ridge):
    gram = Gram(d, ridge=ridge)
    bonus = gram.observe(rows(seed, n, d))
    growth = float(gram.log_det()) - d * np.log(ridge)
    assert float(bonus.clamp(max=1).sum()) <= 2 * growth + 1e-9
    np.testing.assert_allclose(growth, float(bonus.log1p().sum()), rtol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(4, 12), (30, 12), (90, 12), (203, 130)])
def test_what_the_matrix_says_between_two_folds(n, d):
    """Single rows leave updates waiting, in the dual form and in the primal one: nothing may overlook them."""
    gram = Gram(d, ridge=0.7)
    assert float(gram.effective_dimension()) == 0
    one_by_one(gram, rows(2, n, d))
    a, inverse, probe = gram.matrix()[0], gram.inverse()[0], rows(3, 5, d)
    assert torch.equal(inverse, inverse.T)
    torch.testing.assert_close(inverse, torch.linalg.inv(a), rtol=1e-9, atol=1e-12)
    expected = (probe @ inverse * probe).sum(-1)
    torch.testing.assert_close(gram.quadratic(probe), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(gram.quadratic(probe[:2]), expected[:2], rtol=1e-9, atol=0)
    expected = torch.trace(torch.linalg.solve(a, a - 0.7 * torch.eye(d).double()))
    torch.testing.assert_close(gram.effective_dimension()[0], expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(gram.log_det()[0], torch.logdet(a), rtol=1e-10, atol=0)
    gram.observe(probe)  # a block on top
    more = torch.cat([rows(2, n, d), probe])
    torch.testing.assert_close(
        gram.inverse()[0], torch.linalg.inv(0.7 * torch.eye(d).double() + more.T @ more)
    )


def test_simultaneous_measures_all_rows_before_any_update():
    phi = rows(3, 90, 20)
    for before in (0, 7, 100):
        gram, still = Gram(20), Gram(20)
        gram.observe(rows(4, before, 20))
        still.observe(rows(4, before, 20))
        torch.testing.assert_close(
            gram.observe(phi, simultaneous=True), still.quadratic(phi), rtol=1e-12, atol=0
        )
        still.observe(phi)
        torch.testing.assert_close(gram.matrix(), still.matrix(), rtol=1e-13, atol=1e-13)


# -- rollouts and several memories ---------------------------------------------------------------------------------


@FAST
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 90),
    t=st.integers(1, 60),
    n=st.integers(1, 4),
    calls=st.integers(1, 3),
)
def test_a_lifelong_rollout_equals_single_observations(seed, d, t, n, calls):
    phi = rows(seed, calls * t * n, d).reshape(calls, t, n, d)
    fast, slow = Gram(d), Gram(d)
    for rollout in phi:
        torch.testing.assert_close(
            fast.observe_rollout(rollout),
            one_by_one(slow, rollout.flatten(0, 1)).reshape(t, n),
            rtol=1e-9,
            atol=0,
        )


@pytest.mark.parametrize("d", [3, 70])
@pytest.mark.parametrize("t", range(2, 10))
def test_short_rollouts_on_the_way_to_the_primal_form(d, t):
    """The memory turns primal at row max(64, d), in the middle of a rollout for most t."""
    phi = rows(7, 40 * t, d)
    fast, slow = Gram(d), Gram(d)
    bonus = torch.cat([fast.observe_rollout(part[:, None]).flatten() for part in phi.split(t)])
    torch.testing.assert_close(bonus, one_by_one(slow, phi), rtol=1e-9, atol=0)
    torch.testing.assert_close(fast.quadratic(phi[:5]), slow.quadratic(phi[:5]), rtol=1e-9, atol=0)


@FAST
@given(
    seed=st.integers(0, 10**6),
    d=st.sampled_from([1, 3, 20, 64]),
    t=st.integers(1, 50),
    n=st.integers(2, 4),
    often=st.sampled_from([0.0, 0.05, 0.5]),
)
def test_episodic_equals_one_gram_per_env_with_hand_resets(seed, d, t, n, often):
    generator = torch.Generator().manual_seed(seed)
    phi = rows(seed, 2 * t * n, d).reshape(2, t, n, d)
    starts = torch.rand(2, t, n, generator=generator) < often
    rollout, steps, single = Gram(d, memories=n), Gram(d, memories=n), [Gram(d) for _ in range(n)]
    for x, begins in zip(phi, starts, strict=True):
        by_rollout = rollout.observe_rollout(x, begins)
        for i in range(t):
            steps.reset(begins[i])
            by_step = steps.observe(x[i])
            for j in range(n):
                if begins[i, j]:
                    single[j].reset()
                expected = single[j].observe(x[i, j][None])[0]
                torch.testing.assert_close(by_step[j], expected, rtol=1e-9, atol=0)
                torch.testing.assert_close(by_rollout[i, j], expected, rtol=1e-9, atol=0)


def test_many_memories_step_together_as_they_do_apart():
    """A batched step is for a dozen memories and more of about the same age; ragged ones and primal ones go singly."""
    n, d = 16, 70
    phi = rows(9, 90 * n, d).reshape(90, n, d)
    gram, apart = Gram(d, memories=n), [Gram(d) for _ in range(n)]
    for t, x in enumerate(phi):
        mask = torch.zeros(n, dtype=torch.bool)
        mask[t % n] = t in (20, 21, 60)
        gram.reset(mask)
        for i in mask.nonzero()[:, 0].tolist():
            apart[i].reset()
        expected = torch.cat([g.observe(row[None]) for g, row in zip(apart, x, strict=True)])
        torch.testing.assert_close(gram.observe(x), expected, rtol=1e-9, atol=0)


def test_an_episode_longer_than_d_goes_on_in_the_primal_form_and_a_reset_forgets_it():
    phi = rows(5, 400, 30)
    gram = Gram(30, memories=2)
    both = phi.reshape(200, 2, 30)
    np.testing.assert_allclose(gram.observe_rollout(both)[:, 1], direct(both[:, 1], 1.0), rtol=1e-9)
    gram.reset(torch.tensor([False, True]))
    assert torch.equal(gram.matrix()[1], torch.eye(30).double())
    torch.testing.assert_close(gram.observe(both[0])[1], both[0, 1] @ both[0, 1], rtol=1e-14, atol=0)
    assert float(gram.quadratic(both[0], memory=0)[0]) < 0.5


def test_quadratic_chooses_memories_and_changes_nothing():
    gram = Gram(5, memories=3)
    gram.observe_rollout(rows(6, 30, 5).reshape(10, 3, 5))
    before = copy.deepcopy(gram.state_dict())
    phi = rows(7, 12, 5)
    each = torch.stack([gram.quadratic(phi, memory=i) for i in range(3)])  # [3, 12]
    torch.testing.assert_close(gram.quadratic(phi[:3]), each[[0, 1, 2], [0, 1, 2]])
    grid = phi.reshape(3, 4, 5)
    torch.testing.assert_close(
        gram.quadratic(grid, memory=torch.arange(3)[:, None]),
        torch.stack([each[i].reshape(3, 4)[i] for i in range(3)]),
    )
    assert gram.quadratic(phi[0], memory=1).shape == ()
    assert gram.quadratic(phi[:0], memory=1).shape == (0,)
    assert all(torch.equal(before[name], value) for name, value in gram.state_dict().items())


# -- workers, rebuilding, drift ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_merged_increments_equal_joint_observation(dtype):
    tolerance = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    ours, theirs, joint = (Gram(8, dtype=dtype, ridge=100.0) for _ in range(3))
    for round_ in range(3):
        a, b = rows(10 + round_, 20, 8), rows(20 + round_, 15, 8)
        ours.observe(a), theirs.observe(b), joint.observe(torch.cat([a, b]))
        mine, yours = ours.increment(), theirs.increment()
        torch.testing.assert_close(mine[0], (a.T @ a).to(dtype), **tolerance)
        ours.merge(yours), theirs.merge(mine)
        for gram in (ours, theirs):
            torch.testing.assert_close(gram.matrix(), joint.matrix(), **tolerance)
            torch.testing.assert_close(gram.quadratic(a), joint.quadratic(a), **tolerance)
    assert torch.count_nonzero(ours.increment()) == 0


def test_small_increments_survive_a_large_ridge():
    phi = rows(0, 3, 4, 1e-9)
    gram = Gram(4, ridge=10.0)
    gram.observe(phi)
    torch.testing.assert_close(gram.increment()[0], phi.T @ phi, rtol=1e-12, atol=0)


@pytest.mark.parametrize("n", [0, 3, 50])
def test_rebuild_takes_exactly_the_given_rows(n):
    gram, fresh = Gram(9, ridge=0.4), Gram(9, ridge=0.4)
    gram.observe(rows(0, 77, 9))
    phi, probe = rows(1, n, 9), rows(2, 5, 9)
    gram.rebuild(phi)
    fresh.observe(phi)
    torch.testing.assert_close(gram.quadratic(probe), fresh.quadratic(probe), rtol=1e-11, atol=0)
    assert torch.count_nonzero(gram.increment()) == 0


def test_a_short_drift_run_stays_with_a_fresh_factorisation():
    generator = np.random.default_rng(0)
    mixing = generator.standard_normal((16, 16)) * np.logspace(0, -3, 16)[:, None]
    gram = Gram(16)
    for _ in range(20):
        phi = np.maximum(generator.standard_normal((1000, 16)) @ mixing, 0)
        gram.observe_rollout(phi[:, None])
        for x in phi[:50]:
            gram.observe(x[None])
        exact = np.einsum("nd,nd->n", phi, np.linalg.solve(gram.matrix()[0].numpy(), phi.T).T)
        np.testing.assert_allclose(gram.quadratic(phi), exact, rtol=1e-9)


def test_a_wrong_inverse_is_noticed_and_recomputed():
    gram = made_dense(Gram(10))
    gram.observe(rows(0, 500, 10))
    gram.form.inverse.mul_(1.001)
    gram.observe(rows(1, 200, 10))
    probe = rows(2, 6, 10)
    exact = (probe * torch.linalg.solve(gram.matrix()[0], probe.T).T).sum(-1)
    torch.testing.assert_close(gram.quadratic(probe), exact, rtol=1e-9, atol=0)


# -- Thompson ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 3, 20, 333])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_covariance_of_samples_is_the_inverse(n, dtype):
    gram = Gram(5, ridge=0.5, dtype=dtype)
    if n:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gram.observe(rows(0, n, 5))
    generator = torch.Generator().manual_seed(1)
    draws = torch.stack([gram.sample(generator)[0] for _ in range(6000)]).double()
    root = torch.linalg.cholesky(gram.inverse()[0].double())
    white = torch.linalg.solve_triangular(root, draws.T, upper=False)  # must be standard normal
    assert (white @ white.T / 6000 - torch.eye(5)).abs().max() < 0.09  # five standard errors
    assert white.mean(1).abs().max() < 0.065
    assert gram.sample(generator).shape == (1, 5)


def test_samples_know_the_updates_that_wait():
    gram = Gram(130)
    one_by_one(gram, rows(0, 203, 130))
    generator = torch.Generator().manual_seed(1)
    draws = torch.cat([gram.sample(generator) for _ in range(3000)])
    probe = rows(1, 4, 130)
    torch.testing.assert_close((draws @ probe.T).var(0), gram.quadratic(probe), rtol=0.13, atol=0)


def test_samples_follow_the_generator_and_need_no_new_factor_while_the_base_stays(monkeypatch):
    gram = made_dense(Gram(6))
    gram.observe(rows(0, 100, 6))
    first = gram.sample(torch.Generator().manual_seed(3))
    monkeypatch.setattr("critex.bonus._memories.dpotrf", None)
    assert torch.equal(first, gram.sample(torch.Generator().manual_seed(3)))
    assert not torch.equal(first, gram.sample(torch.Generator().manual_seed(4)))


# -- state ---------------------------------------------------------------------------------------------------------


def through_state_dict(gram: Gram) -> Gram:
    buffer = io.BytesIO()
    torch.save(gram.state_dict(), buffer)
    buffer.seek(0)
    other = Gram(gram.dim, ridge=gram.ridge, memories=gram.memories, dtype=gram.dtype)
    other.observe_rollout(rows(99, 70 * gram.memories, gram.dim).reshape(70, gram.memories, gram.dim))
    other.load_state_dict(torch.load(buffer, weights_only=True))
    return other


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "d"), [(0, 12), (3, 12), (40, 12), (175, 12), (130, 128)])
@pytest.mark.parametrize(
    "how", [through_state_dict, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g)), lambda g: g.cpu()]
)
def test_state_round_trips_to_the_bit(dtype, n, d, how):
    gram = Gram(d, ridge=0.3, memories=2, dtype=dtype)
    gram.observe_rollout(rows(0, 2 * n, d).reshape(n, 2, d))
    for x in rows(1, min(n, 5) * 2, d).reshape(-1, 2, d):
        gram.observe(x)
    if n == 40:
        gram.increment()
    twin, original = how(gram), copy.deepcopy(gram)
    more = rows(1, 2 * 90, d).reshape(90, 2, d)
    for x in more:
        assert torch.equal(twin.observe(x), original.observe(x))
    assert torch.equal(twin.observe_rollout(more), original.observe_rollout(more))
    assert torch.equal(twin.increment(), original.increment())
    assert torch.equal(
        twin.sample(torch.Generator().manual_seed(0)), original.sample(torch.Generator().manual_seed(0))
    )


def test_a_copy_is_independent():
    gram = Gram(4)
    gram.observe(rows(0, 30, 4))
    before = gram.matrix()
    twin = copy.deepcopy(gram)
    twin.observe(rows(1, 30, 4))
    assert torch.equal(gram.matrix(), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_moving_to_another_device_keeps_what_was_seen(dtype):
    gram = Gram(6, memories=2, ridge=100.0, dtype=dtype, device="cpu:0")  # another device than "cpu" to torch
    gram.observe_rollout(rows(0, 80, 6).reshape(40, 2, 6))
    gram.increment()
    gram.observe(more := rows(1, 2, 6))
    form, before, expected = gram.form, gram.matrix(), gram.quadratic(more)
    gram.to("cpu")
    assert gram.form is not form and gram.device == torch.device("cpu")
    assert torch.equal(gram.matrix(), before)
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(gram.quadratic(more), expected, **tolerance)
    torch.testing.assert_close(gram.increment(), (more[:, :, None] * more[:, None]).to(dtype), **tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_cast_of_the_module_around_it_leaves_the_dtype(dtype):
    gram = Gram(6, dtype=dtype, ridge=100.0)
    gram.observe(rows(0, 20, 6))
    expected = gram.quadratic(probe := rows(1, 2, 6))
    for cast in ("float", "half", "bfloat16", "double"):
        getattr(nn.ModuleList([gram]), cast)()
        assert gram.dtype == dtype and torch.equal(gram.quadratic(probe), expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float32_is_primal_and_close():
    phi = rows(0, 300, 20)
    for bonus in (
        one_by_one(Gram(20, dtype=torch.float32), phi),
        Gram(20, dtype=torch.float32).observe_rollout(phi[:, None]),
    ):
        assert bonus.dtype == torch.float32
        np.testing.assert_allclose(bonus.flatten(), direct(phi, 1.0), rtol=1e-3)


def test_a_state_of_another_size_is_refused():
    with pytest.raises(RuntimeError, match=r"does not fit ExactForm\(dim=5"):
        Gram(5).load_state_dict(Gram(4).state_dict())


# -- bad input -----------------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.observe(torch.ones(2, 4)), r"phi must have shape \[N, 3\], got \[2, 4\]"),
        (lambda g: g.observe(torch.ones(3)), r"phi must have shape \[N, 3\], got \[3\]"),
        (lambda g: g.observe(torch.ones(3, 3)), r"phi must have one row per memory, \[2, 3\], got \[3, 3\]"),
        (
            lambda g: g.observe(torch.tensor([[1.0, 2, 3], [4, NAN, 6]])),
            r"phi must be finite, got nan at \[1, 1\]",
        ),
        (
            lambda g: g.observe(np.array([[1.0, 2, INF], [4, 5, 6]])),
            r"phi must be finite, got inf at \[0, 2\]",
        ),
        (lambda g: g.observe(np.full((2, 3), 1e200)), r"phi must be (smaller|finite)"),
        (lambda g: g.observe([["a", "b", "c"]] * 2), r"phi must hold real numbers"),
        (lambda g: g.quadratic(torch.ones(5, 3)), r"memory must be given for phi of shape \[5, 3\]"),
        (lambda g: g.quadratic(torch.ones(5, 3), memory=2), r"memory must be an index from 0 to 1, got 2"),
        (
            lambda g: g.quadratic(torch.ones(5, 3), memory=np.array([0, 1])),
            r"memory of shape \[2\] does not broadcast",
        ),
        (
            lambda g: g.observe_rollout(torch.ones(4, 3, 3)),
            r"phi must have one env per memory, \[T, 2, 3\], got \[4, 3, 3\]",
        ),
        (
            lambda g: g.observe_rollout(torch.ones(4, 2, 3) * NAN),
            r"phi must be finite, got nan at \[0, 0, 0\]",
        ),
        (
            lambda g: g.observe_rollout(torch.ones(4, 2, 3), torch.ones(4, 3) > 0),
            r"starts must be booleans of shape \[4, 2\]",
        ),
        (lambda g: g.observe_rollout(torch.ones(4, 2, 3), torch.ones(4, 2)), r"starts must be booleans"),
        (
            lambda g: g.reset(torch.tensor([True])),
            r"mask must be booleans of shape \[2\], got bool of shape \[1\]",
        ),
        (lambda g: g.reset([1, 0]), r"mask must be booleans of shape \[2\], got int64"),
        (lambda g: g.merge(torch.ones(3, 3)), r"increment must have shape \[2, 3, 3\], got \[3, 3\]"),
        (lambda g: g.merge(torch.full((2, 3, 3), NAN)), r"increment must be finite"),
        (lambda g: g.merge(torch.arange(18.0).reshape(2, 3, 3)), r"increment must be symmetric"),
        (
            lambda g: g.merge(torch.stack([torch.eye(3), -1e6 * torch.eye(3)])),
            r"increment\[1\] must be a sum",
        ),
        (lambda g: g.rebuild(torch.ones(5, 3)), r"memory must say which of the 2 memories"),
        (lambda g: g.rebuild(torch.ones(5, 3), memory=7), r"memory must be an index from 0 to 1, got 7"),
        (lambda g: g.rebuild(torch.ones(5, 3) * NAN, memory=1), r"phi must be finite"),
    ],
)
@pytest.mark.parametrize("n", [2, 60])
def test_bad_input_is_named_and_leaves_the_memory_as_it_was(call, message, dtype, n):
    gram = Gram(3, memories=2, dtype=dtype, ridge=100.0)
    gram.observe_rollout(rows(0, 2 * n, 3).reshape(n, 2, 3))
    before = {name: value.clone() for name, value in gram.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        call(gram)
    assert before.keys() == gram.state_dict().keys()
    assert all(torch.equal(before[name], value) for name, value in gram.state_dict().items())


def test_nan_in_a_shared_memory_changes_nothing():
    gram = Gram(3)
    gram.observe(rows(0, 5, 3))
    before = gram.matrix()
    for bad in (torch.tensor([[NAN, 0, 0]]), torch.tensor([[1.0, 0, 0], [0, 0, -INF]])):
        with pytest.raises(ValueError, match="phi must be finite"):
            gram.observe(bad)
        with pytest.raises(ValueError, match="phi must be finite"):
            gram.quadratic(bad)
    assert torch.equal(gram.matrix(), before)


def test_starts_with_a_shared_memory_is_an_error():
    with pytest.raises(ValueError, match="starts needs one memory per env"):
        Gram(3).observe_rollout(torch.ones(4, 2, 3), torch.zeros(4, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"dim": 0}, "dim must be a whole number of at least 1, got 0"),
        ({"dim": 2.5}, "dim must be a whole number"),
        ({"dim": 2, "memories": 0}, "memories must be a whole number of at least 1, got 0"),
        ({"dim": 2, "ridge": 0.0}, "ridge must be a finite number above 0, got 0.0"),
        ({"dim": 2, "ridge": -1}, "ridge must be a finite number above 0, got -1"),
        ({"dim": 2, "ridge": NAN}, "ridge must be a finite number above 0, got nan"),
        (
            {"dim": 2, "dtype": torch.float16},
            "dtype must be torch.float64 or torch.float32, got torch.float16",
        ),
    ],
)
def test_bad_construction(kwargs, message):
    with pytest.raises(ValueError, match=message):
        Gram(**kwargs)


def test_phi_may_be_an_array_a_list_integers_half_precision_or_carry_gradients():
    expected = Gram(2).observe([[1.0, 2.0], [3.0, 4.0]])
    for phi in (
        np.array([[1, 2], [3, 4]]),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([[1.0, 2], [3, 4]], requires_grad=True),
        torch.tensor([[1.0, 2], [3, 4]]).half(),
        torch.tensor([[1.0, 3], [2, 4]]).T,
    ):
        bonus = Gram(2).observe(phi)
        assert torch.equal(bonus, expected) and not bonus.requires_grad


def test_rows_may_name_their_memories():
    phi = rows(8, 9, 4)
    index = torch.tensor([2, 0, 2, 2, 0, 1, 0, 2, 1])
    gram, apart = Gram(4, memories=3), [Gram(4) for _ in range(3)]
    expected = torch.stack([apart[i].observe(x[None])[0] for i, x in zip(index.tolist(), phi, strict=True)])
    torch.testing.assert_close(gram.observe(phi, index), expected, rtol=1e-12, atol=0)
    before = torch.stack([apart[i].quadratic(x) for i, x in zip(index.tolist(), phi, strict=True)])
    torch.testing.assert_close(gram.observe(phi, index, simultaneous=True), before, rtol=1e-12, atol=0)


# -- states and threads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 100, 300])
def test_a_float32_state_loads_into_float64_and_loses_no_update(n):
    gram, twin = Gram(8), Gram(8)
    gram.observe(rows(0, n, 8))
    twin.load_state_dict({name: value.float() for name, value in gram.state_dict().items()})
    more = rows(1, 200, 8)
    torch.testing.assert_close(one_by_one(twin, more), one_by_one(gram, more), rtol=1e-4, atol=0)
    assert all(
        value.dtype == torch.float64 for name, value in twin.state_dict().items() if "counts" not in name
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(ridge=torch.tensor(0.1)), r"ridge is 0.1.* in the state and 1.0 here"),
        (lambda s: s.update({"form.outer": s["form.outer"].cfloat()}), "form.outer must hold finite real"),
        (lambda s: s.update({"form.mass": s["form.mass"] * NAN}), "form.mass must hold finite real"),
        (lambda s: s.update({"form.outer": s["form.outer"][:, :2]}), "form.outer of shape"),
        (lambda s: s.update({"form.mass": s["form.mass"][:0]}), "form.mass of shape"),
        (lambda s: s.update({"form.counts": s["form.counts"][0]}), "form.counts of shape"),
    ],
)
def test_inconsistent_states_are_refused_and_nothing_changes(change, message, dtype):
    gram, other = Gram(3, dtype=dtype), Gram(3, dtype=dtype)
    gram.observe(rows(0, 70, 3))
    other.observe(rows(1, 70, 3))
    before, state = other.matrix(), gram.state_dict()
    change(state)
    with pytest.raises(RuntimeError, match=message):
        other.load_state_dict(state)
    assert torch.equal(other.matrix(), before)


def test_counts_that_contradict_the_buffers_are_refused():
    gram = Gram(3)
    gram.observe(rows(0, 5, 3))
    for counts in ([9, 0, 0, 0], [-1, 0, 0, 0], [2, 0, 0, 1], [2, 0, 0, 7]):
        state = gram.state_dict() | {"form.counts": torch.tensor([counts])}
        with pytest.raises(RuntimeError, match="counts .* do not fit"):
            Gram(3).load_state_dict(state)


def test_states_of_early_versions_without_a_ridge_load():
    gram = Gram(3, ridge=0.5)
    gram.observe(rows(0, 5, 3))
    state = {name: value for name, value in gram.state_dict().items() if name != "ridge"}
    twin = Gram(3, ridge=0.5)
    twin.load_state_dict(state)
    assert torch.equal(twin.matrix(), gram.matrix())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "phi",
    [
        torch.ones(1, 3, dtype=torch.complex64),
        torch.ones(2, 3, dtype=torch.complex128),
        np.ones((1, 3), np.complex64),
        torch.ones(1, 3).to_sparse(),
        torch.ones(1, 3, device="meta"),
        np.array([[None, 1, 2]], dtype=object),
        np.array([["2024-01-01"] * 3], dtype="datetime64[D]"),
    ],
    ids=str,
)
def test_features_that_are_not_dense_real_numbers_are_refused(phi, dtype):
    gram = Gram(3, dtype=dtype)
    before = gram.matrix()
    for call in (gram.observe, gram.quadratic):
        with pytest.raises(ValueError, match="phi must"):
            call(phi)
    assert torch.equal(gram.matrix(), before)


@pytest.mark.parametrize("d", [4, 70])
def test_threads_that_share_a_gram_lose_nothing(d):
    gram, threads, each = Gram(d), 4, 300
    phi = [list(rows(i, each, d)[:, None]) for i in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=lambda x=x: [gram.observe(row) for row in x]) for x in phi]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    everything = torch.cat([row for x in phi for row in x]).double()
    torch.testing.assert_close(
        gram.matrix()[0], everything.T @ everything + torch.eye(d), rtol=1e-9, atol=1e-9
    )
    inverse = torch.linalg.inv(gram.matrix()[0])
    torch.testing.assert_close(gram.inverse()[0], inverse, rtol=1e-6, atol=1e-9)
