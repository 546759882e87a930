from __future__ import annotations

import pytest
import torch

from critex.bonus import STRATEGIES, Gram, strategy


def test_the_formulas():
    q = torch.tensor([0.25, 4.0])
    z = torch.tensor([-1.0, 0.5])
    assert STRATEGIES["ucb"](q).tolist() == [0.5, 2.0]
    assert STRATEGIES["ucb_squared"](q).tolist() == [0.25, 4.0]
    assert STRATEGIES["thompson"](q, z).tolist() == [-0.5, 1.0]
    assert [s.random for s in STRATEGIES.values()] == [False, False, True]


def test_thompson_needs_noise():
    with pytest.raises(ValueError, match="'thompson' is random: pass z"):
        STRATEGIES["thompson"](torch.ones(3))


def test_another_strategy_is_one_function(monkeypatch):
    monkeypatch.setattr("critex.bonus.strategies.STRATEGIES", registry := {})

    @strategy(random=True)
    def optimistic(q, z):
        return q.sqrt() * z.clamp(min=0.0)

    assert registry == {"optimistic": optimistic}
    assert optimistic(torch.tensor([4.0, 4.0]), torch.tensor([1.5, -1.0])).tolist() == [3.0, 0.0]
    with pytest.raises(ValueError, match="registered already"):
        strategy(random=False)(optimistic.fn)


def test_the_one_dimensional_law_and_the_shared_sample_agree():
    """Δθᵀφ of a shared Δθ has the mean and variance of √q·z, and actions that share Δθ are correlated as φᵀA⁻¹ψ."""
    gram = Gram(4)
    gram.observe(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)))
    phi = torch.randn(2, 4, generator=torch.Generator().manual_seed(1)).double()
    generator = torch.Generator().manual_seed(2)
    theta = torch.cat([gram.sample(generator) for _ in range(8000)])  # [8000, 4]
    shared = theta @ phi.T
    q = gram.quadratic(phi)
    direct = STRATEGIES["thompson"](q, torch.randn(8000, 2, generator=generator, dtype=torch.float64))
    for draws in (shared, direct):
        torch.testing.assert_close(draws.var(0), q, rtol=0.08, atol=0)
        assert (draws.mean(0).abs() < 5 * (q / 8000).sqrt()).all()
    covariance = phi[0] @ gram.inverse()[0] @ phi[1]
    spread = (q.prod() + covariance**2).sqrt() / 8000**0.5
    assert abs(shared.T.cov()[0, 1] - covariance) < 5 * spread
    assert abs(direct.T.cov()[0, 1]) < 5 * spread
