"""Connecting to Ray: what is missing or does not answer is said in one line, at once."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import pytest

from critex.errors import UserError
from critex.run.cluster import connect, one_line


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'critex\[ray\]'"):
        connect(None, 1)


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: critex[ray]")
@pytest.mark.parametrize(
    ("address", "message"),
    [("127.0.0.1:1", "reached at 127.0.0.1:1: .*refused"), ("nonsense", "an address is auto, host:6379")],
)
def test_an_address_where_nobody_is_is_refused_at_once(address: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        connect(address, 1)


def test_long_messages_become_one_line() -> None:
    error: Any = ValueError("a\n  b")
    assert one_line(error) == "a b"
    assert len(one_line(ValueError("x" * 1000))) < 450
