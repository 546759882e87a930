"""Numbers as people and files want them."""

from __future__ import annotations

import pytest

from critex.results.formatting import as_printed, estimate, number, signed
from critex.results.stats import Estimate

nan = float("nan")


@pytest.mark.parametrize(
    ("value", "written"),
    [(12.345, "+12.3"), (-0.8173, "-0.817"), (1234.5, "+1,234"), (-99.96, "-100"), (-0.0, "+0"), (nan, "")],
)
def test_differences_have_a_sign(value: float, written: str) -> None:
    assert signed(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Estimate(12.345, 4.5, 20.1), "12.3 [4.5, 20.1]"),
        (Estimate(0.5, 0.25, 0.75), "0.50 [0.25, 0.75]"),
        (Estimate(100, 100, 100), "100 [100, 100]"),
        (Estimate(50, nan, nan), "50"),  # one seed: no interval
        (Estimate(nan, nan, nan), ""),
    ],
)
def test_estimates_have_an_interval(value: Estimate, written: str) -> None:
    assert estimate(value) == written


def test_the_paper_keeps_its_digits() -> None:
    assert as_printed((3492.0, 1745.7), 5) == "3,492 ± 1,745.7 (n=5)"
    assert as_printed((-0.46, 0.193), 3) == "-0.46 ± 0.193 (n=3)"
    assert as_printed((25466652, nan), 0) == "25,466,652"
    assert as_printed(None, 5) == ""


def test_numbers_for_files() -> None:
    assert [number(v) for v in (1 / 3, 25466652, nan, float("inf"))] == ["0.3333333333", "25466652", "", ""]
