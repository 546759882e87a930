"""Options declare their range or their choices beside the field; they are checked once and shown in --help.

    @dataclass
    class Config(Options):
        gamma: Probability = 0.99
        clip: Annotated[float, Range(above=0)] = 0.2
        hidden: tuple[Count, ...] = (64, 64)
        u_dim: Count | None = None
        scope: Literal["lifelong", "episodic"] = "lifelong"

A value outside its range or its choices, and any NaN or infinity, is a `UserError` of one line.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from critex.errors import UserError, unknown

LARGEST = 2**63 - 1
"""The largest integer that torch and a config file can hold."""


@dataclass(frozen=True)
class Range:
    """low ≤ value ≤ high and above < value < below, for the given bounds."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"between {self.low:g} and {self.high:g}"
        bounds = (
            ("at least", self.low),
            ("above", self.above),
            ("at most", self.high),
            ("below", self.below),
        )
        return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Size = Annotated[int, Range(1, 10**9)]
"""The length of a tensor: sums and products of two still fit 64 bits."""
Probability = Annotated[float, Range(0, 1)]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(0)]
Finite = Annotated[float, Range()]
"""Any number except NaN, infinity and integers beyond 64 bits, which every range refuses."""


class Options:
    """A dataclass whose values are checked when it is made. A subclass with a `__post_init__` calls this one first."""

    def __post_init__(self) -> None:
        check_ranges(self)


def check_ranges(options: Any) -> None:
    """Refuse the first value outside its declared range or choices, and any NaN, infinity or integer beyond 64 bits."""
    cls: Any = type(options)
    for name, hint in _hints(cls).items():
        _check(name, hint, getattr(options, name))


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _check(name: str, hint: Any, value: Any) -> None:
    if isinstance(value, tuple | list):
        for item in value:
            _check(name, hint, item)
    elif get_origin(hint) is Literal and value not in get_args(hint):
        raise unknown(name, str(value), get_args(hint))
    elif hint is bool and not isinstance(value, bool):
        raise UserError(f"{name} is {value!r}; it must be True or False")
    elif isinstance(value, int) and abs(value) > LARGEST:  # first, because no float holds every integer
        raise UserError(f"{name} is too large; it must be at most {LARGEST}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise UserError(f"{name} is {value}; it must be a finite number")
        for bounds in ranges_of(hint):
            if value not in bounds:
                raise UserError(f"{name} is {value}; it must be {bounds}")


def ranges_of(hint: Any) -> list[Range]:
    """The ranges in a type, also inside `X | None` and `tuple[X, ...]`."""
    args = get_args(hint)
    if get_origin(hint) is Annotated:
        return [extra for extra in args[1:] if isinstance(extra, Range)]
    return [bounds for arg in args for bounds in ranges_of(arg)]
