"""α, the weight of the bonus in r̃ = r + αβ: a number, or a rule on the scales seen so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from typing import Any, Literal

from torch import Tensor

from critex.console import notice
from critex.errors import UserError
from critex.ranges import NonNegative

AlphaOption = NonNegative | Literal["auto", "auto_decay"]

RATIO = 0.1
"""c, the same for every task."""
WARMUP = 1_000
"""Steps that the rule leaves out: the first scaled bonuses are spikes, because their running deviation has not settled."""
RECENT = 10_000
"""Steps that the reported share of the bonus covers, with exponentially falling weights."""
DENSE = 0.01
"""Minimum share of steps with a reward for a warning that the bonus is larger than the reward."""


class Moments:
    """Running standard deviation of numbers that arrive one by one (Welford)."""

    def __init__(self, count: int = 0, mean: float = 0.0, squares: float = 0.0) -> None:
        self.count, self.mean, self.squares = count, mean, squares

    def add(self, x: float) -> None:
        """n ← n + 1; δ = x − μ; μ ← μ + δ/n; ν² ← ν² + δ(x − μ)."""
        self.count += 1
        delta = x - self.mean
        self.mean += delta / self.count
        self.squares += delta * (x - self.mean)

    def std(self) -> float:
        """√(ν²/n), and 0 before the first number."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0

    def spread(self) -> float:
        """σ, but at least |μ|/10: numbers that hardly change must not be blown up."""
        return max(self.std(), abs(self.mean) / 10)


class Alpha:
    r"""The current α: the given number, or with `auto`

        α = c · max(σ[r]/σ[β], 1/σ[B]),    B ← γB + β,

    where σ is a running standard deviation and B the discounted sum of bonuses since the beginning of the episode. Where
    rewards are dense, the first term gives the bonus c times the spread of the reward, whatever the unit of either.
    Where they are rare or small, the second gives the bonus of an episode a spread of c: a goal that pays 1 may still be
    out there, and must not drown in the bonus once it is found. σ covers the whole run, so that αβ still falls as β does.
    `auto_decay` lets this α fall linearly to 0 over the `total` steps of the run.

    `observe` takes rewards and bonuses in the order of time, in the unit in which the algorithm adds them.
    """

    def __init__(
        self, option: float | str, gamma: float = 0.99, total: float = math.inf, in_reward: bool = True
    ) -> None:
        self.rule = option if isinstance(option, str) else ""
        self.value: float = RATIO if self.rule else float(option)
        self.gamma, self.total, self.in_reward = gamma, total, in_reward
        self._steps = 0
        self._sums: list[float] = []  # B of each environment
        self._moments = (Moments(), Moments(), Moments())  # of r, β and B
        self._recent = [0.0] * 4  # Σ|αβ|, Σ|r|, steps with a reward, steps
        self._warned = False

    def observe(
        self,
        reward: Tensor,
        bonus: Tensor,
        episode_start: Tensor,
        apart: bool = False,
        envs: Sequence[int] | None = None,
    ) -> float:
        """Add steps [N] or [T, N], and return α.

        `episode_start`: an episode begins with this step. `apart`: the steps do not follow those of the last call. `envs`:
        the environment of each row, if some have none.
        """
        if not (self.rule or self.value):
            return self.value
        rewards, bonuses = reward.flatten().tolist(), bonus.flatten().tolist()
        if self.rule:
            envs = range(reward.shape[-1]) if envs is None else envs
            if apart:
                self._sums = []
            self._sums += [0.0] * (max(envs, default=-1) + 1 - len(self._sums))
            self._add(rewards, bonuses, episode_start.flatten().tolist(), envs)
            self.value = self._auto()
        n, falling = len(rewards), (1 - 1 / RECENT) ** len(rewards)
        new = (self.value * sum(map(abs, bonuses)), sum(map(abs, rewards)), n - rewards.count(0.0), n)
        self._recent = [falling * old + x for old, x in zip(self._recent, new, strict=True)]
        return self.value

    def _add(
        self, rewards: list[float], bonuses: list[float], starts: list[bool], envs: Sequence[int]
    ) -> None:
        sums = self._sums
        for r, b, start, env in zip(rewards, bonuses, starts, cycle(envs), strict=False):
            sums[env] = b if start else self.gamma * sums[env] + b
            self._steps += 1
            if self._steps > WARMUP:
                for moments, x in zip(self._moments, (r, b, sums[env]), strict=True):
                    moments.add(x)

    def _auto(self) -> float:
        of_reward, of_bonus, of_sum = self._moments
        alpha = RATIO
        if of_bonus.count:
            alpha *= max(of_reward.std() / (of_bonus.spread() or 1.0), 1 / (of_sum.spread() or 1.0))
        return alpha * max(1 - self._steps / self.total, 0.0) if self.rule == "auto_decay" else alpha

    def metrics(self) -> dict[str, float]:
        """α, and the share of the bonus, Σ|αβ| / (Σ|αβ| + Σ|r|) of recent steps; warns once if it is the larger part.

        Without `in_reward` the bonus that counts is measured later, and its share is not known here.
        """
        bonus, reward, rewarded, steps = self._recent
        if not bonus:
            return {}
        if not self.in_reward:
            return {"alpha": self.value}
        if not self._warned and bonus > reward and rewarded > DENSE * steps:
            self._warned = True
            hint = "" if self.rule else "; if returns suffer, try a smaller alpha, or alpha=auto"
            notice(
                f"the bonus outweighs the reward: αβ is {bonus / reward:.3g} times as large per step{hint}"
            )
        return {"alpha": self.value, "bonus_share": bonus / (bonus + reward)}

    def state_dict(self) -> dict[str, Any]:
        """The whole state, in plain numbers."""
        moments = [[m.count, m.mean, m.squares] for m in self._moments]
        return {
            "value": self.value,
            "steps": self._steps,
            "sums": list(self._sums),
            "moments": moments,
            "recent": list(self._recent),
            "warned": self._warned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.value = state["value"] if self.rule else self.value  # a number comes from the options alone
        self._steps = state["steps"]
        self._sums = list(state["sums"])
        first, second, third = (Moments(*moments) for moments in state["moments"])
        self._moments = (first, second, third)
        self._recent, self._warned = list(state["recent"]), state["warned"]


class HasAlpha:
    """`alpha`, the current α, of a user's explorer: a number, or set by the rule `auto`. Assign a number to change it."""

    _alpha: Alpha

    @property
    def alpha(self) -> float:
        """The current α."""
        return self._alpha.value

    @alpha.setter
    def alpha(self, value: float) -> None:
        if fixed_or_auto(value).rule:
            raise UserError(f"alpha={value!r} is for a new explorer; assign a number")
        self._alpha.rule, self._alpha.value = "", float(value)


def fixed_or_auto(alpha: float | str, gamma: float = 0.99) -> Alpha:
    """α of a user's loop or another trainer: a number or `auto`."""
    if alpha == "auto_decay":
        raise UserError(
            "alpha='auto_decay' needs the length of the run, which only critex's algorithms know; use 'auto'"
        )
    if isinstance(alpha, str) and alpha != "auto":
        raise UserError(f"alpha is {alpha!r}; give a number, or 'auto'")
    if not isinstance(alpha, str) and not (math.isfinite(alpha) and alpha >= 0):
        raise UserError(f"alpha is {alpha}; the exploration coefficient must be finite and not negative")
    if not 0 <= gamma <= 1:
        raise UserError(f"gamma is {gamma}; the discount must be between 0 and 1")
    return Alpha(alpha, gamma)
