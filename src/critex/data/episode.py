"""A finished episode, as environments report it and runs log it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Episode:
    """Which env it ran in, its length, the sum of its extrinsic rewards."""

    env: int
    length: int
    return_: float
    ago: int = 0
    """Steps that all envs together have taken since the step that ended it."""
    measures: dict[str, float] = field(default_factory=dict)
    """Other measures of the env, such as `coverage`: `info["measures"]` of the step that ended the episode."""
