"""Bandit strategies: from the quadratic form q = φᵀA⁻¹φ to the bonus β.

A strategy is a pure function β = f(q, z) of q and standard normal noise z. To add one, register a small function:

    @strategy(random=True)
    def optimistic_thompson(q, z):
        return q.sqrt() * z.clamp(min=0.0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Strategy:
    """β = fn(q, z), elementwise: q [...], z [...] → [...].

    If the bonus is a reward, z is a fresh N(0, 1) draw per row: Δθᵀφ with Δθ ~ N(0, A⁻¹) is N(0, q) exactly. If actions
    are compared, z = Δθᵀφ/√q with one Δθ for all of them, held for the episode: `Gram.sample` draws it.
    """

    name: str
    fn: Callable[[Tensor, Tensor], Tensor]
    random: bool

    def __call__(self, q: Tensor, z: Tensor | None = None) -> Tensor:
        if not self.random:
            return self.fn(q, q)
        if z is None:
            raise ValueError(f"strategy {self.name!r} is random: pass z, for example torch.randn_like(q)")
        return self.fn(q, z)


STRATEGIES: dict[str, Strategy] = {}


def strategy(*, random: bool) -> Callable[[Callable[[Tensor, Tensor], Tensor]], Strategy]:
    """Register f(q, z) under its own name; `random` says whether it uses z."""

    def register(fn: Callable[[Tensor, Tensor], Tensor]) -> Strategy:
        made = Strategy(fn.__name__, fn, random)
        if made.name in STRATEGIES:
            raise ValueError(f"strategy {made.name!r} is registered already; give the function another name")
        STRATEGIES[made.name] = made
        return made

    return register


@strategy(random=False)
def ucb(q: Tensor, z: Tensor) -> Tensor:
    """β = √q, the upper confidence bound of the paper."""
    return q.sqrt()


@strategy(random=False)
def ucb_squared(q: Tensor, z: Tensor) -> Tensor:
    """β = q, without the root, as in the released code."""
    return q


@strategy(random=True)
def thompson(q: Tensor, z: Tensor) -> Tensor:
    """β = √q·z ~ N(0, q): signed, the law of Δθᵀφ with Δθ ~ N(0, A⁻¹)."""
    return q.sqrt() * z
