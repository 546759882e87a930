"""What `critex explain` says about features and about when the bonus is paid."""

from __future__ import annotations

import math

import pytest
import torch

from critex.explain.features import bonus_shares, early_share, early_warning, summarise


def test_closed_form() -> None:
    """Four points (±a, 0, 1) and (0, ±b, 1): covariance diag(a²/2, b²/2, 0)."""
    phi = torch.tensor([[2.0, 0, 1], [-2, 0, 1], [0, 1, 1], [0, -1, 1]])
    found = summarise(phi, ridge=0.5)
    assert found.eigenvalues == pytest.approx([2.0, 0.5, 0.0], abs=1e-12)
    assert found.norm == pytest.approx(3.5)
    assert found.variance_share == pytest.approx(2.5 / 3.5)
    assert found.effective_rank == pytest.approx(math.exp(-(0.8 * math.log(0.8) + 0.2 * math.log(0.2))))
    assert found.warnings == []  # too few steps to judge


def test_features_that_hardly_vary_are_warned_of() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(50, 8, generator=generator)
    assert summarise(noise, 1.0).warnings == []
    assert "hardly varies" in summarise(10 + 0.01 * noise, 1.0).warnings[0]
    assert "hardly varies" in summarise(torch.ones(20, 8), 1.0).warnings[0]
    line = torch.arange(50.0)[:, None] * torch.ones(8)
    assert "1 of its 8 dimensions" in summarise(line, 1.0).warnings[0]
    assert "against λ = 1" in summarise(0.01 * noise, 1.0).warnings[0]


def test_when_the_bonus_is_paid() -> None:
    assert bonus_shares([[1.0] * 20]) == pytest.approx([0.1] * 10)
    assert bonus_shares([[0.0, 0.0], []]) == []
    early = [10.0] * 10 + [1.0] * 30
    assert early_share([early]) == pytest.approx(100 / 130)
    assert early_share([early[:20]]) is None
    assert "77 % of the bonus" in early_warning([early])[0]
    assert early_warning([[1.0] * 40]) == []
