"""Format numbers for people and for files."""

from __future__ import annotations

import math

from critex.results.stats import Estimate, Summary

ABSENT = "—"


def number(value: float) -> str:
    """A number for a CSV file; empty if it is not finite."""
    return f"{value:.10g}" if math.isfinite(value) else ""


def text(value: float | None, unit: str = "") -> str:
    """A number for a person: four digits, thousands separated, bytes and seconds in a suitable unit."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if unit == "bytes":
        for unit in ("bytes", "KiB", "MiB", "GiB"):
            if abs(value) < 1024 or unit == "GiB":
                break
            value /= 1024
    elif unit == "s" and value >= 120:
        value, unit = (value / 60, "min") if value < 7200 else (value / 3600, "h")
    whole = abs(value) >= 1000 or (float(value).is_integer() and abs(value) < 1e15)
    digits = f"{value:,.0f}" if whole else f"{value:.4g}"
    return f"{digits} {unit}".strip()


def signed(value: float) -> str:
    """A difference with its sign and three significant digits; empty if unknown."""
    if math.isnan(value):
        return ""
    return f"{value:+,.0f}" if abs(value) >= 100 else f"{value + 0.0:+.3g}"


def spread(summary: Summary) -> str:
    """mean ± std (n seeds), both rounded to the second digit of the deviation."""
    if not summary.n:
        return ABSENT
    deviation = "" if math.isnan(summary.std) else f" ± {_rounded(summary.std, summary.std)}"
    return f"{_rounded(summary.mean, summary.std)}{deviation} (n={summary.n})"


def interval(summary: Summary) -> str:
    """The bootstrap interval, rounded like the mean."""
    low, high = _rounded(summary.low, summary.std), _rounded(summary.high, summary.std)
    return ABSENT if math.isnan(summary.low) else f"[{low}, {high}]"


def estimate(value: Estimate) -> str:
    """A number with its interval, `12.3 [4.5, 20.1]`, rounded to about a fortieth of its width; empty if unknown."""
    if math.isnan(value.value):
        return ""
    width = (value.high - value.low) / 4
    ends = "" if math.isnan(width) else f" [{_rounded(value.low, width)}, {_rounded(value.high, width)}]"
    return f"{_rounded(value.value, width)}{ends}"


def as_printed(value: tuple[float, float] | None, seeds: int) -> str:
    """`61 ± 35.2 (n=5)` with every printed digit; no ± for a spread of NaN, and empty for None."""
    if value is None:
        return ""
    mean, deviation = value
    return f"{mean:,.12g}" if math.isnan(deviation) else f"{mean:,.12g} ± {deviation:,.12g} (n={seeds})"


def _rounded(value: float, scale: float) -> str:
    """Round to the second digit of the scale, or to four digits if it is not positive (one seed, or all equal)."""
    if not scale > 0:
        return text(value)
    decimals = min(max(1 - math.floor(math.log10(scale)), 0), 12)
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"  # + 0.0 turns -0.0 into 0.0
