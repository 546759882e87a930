"""When the bonus is paid within an episode."""

from __future__ import annotations

import pytest

from critex.explain.features import bonus_shares, early_share


def test_when_the_bonus_is_paid() -> None:
    assert bonus_shares([[1.0] * 20]) == pytest.approx([0.1] * 10)
    assert bonus_shares([[0.0, 0.0], []]) == []
    early = [10.0] * 10 + [1.0] * 30
    assert early_share([early]) == pytest.approx(100 / 130)
    assert early_share([early[:20]]) is None
