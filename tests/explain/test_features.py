"""When the bonus is paid within an episode."""

from __future__ import annotations

import pytest

from critex.explain.features import bonus_shares, early_share


def test_when_the_bonus_is_paid() -> None:
    for steps in (3, 6, 15, 20):
        assert bonus_shares([[1.0] * steps]) == pytest.approx([0.1] * 10)
    assert bonus_shares([[-1.0, 0.0, 3.0, 0.0]], parts=2) == pytest.approx([0.25, 0.75])
    assert bonus_shares([[0.0, 0.0], []]) == []
    early = [10.0] * 10 + [1.0] * 30
    assert early_share([early]) == pytest.approx(100 / 130)
    assert early_share([early[:20]]) is None
