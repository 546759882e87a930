"""α, the weight of the bonus in r̃ = r + αβ: a number, or a rule on the scales seen so far."""

from __future__ import annotations

import math
from typing import Any, Literal

from torch import Tensor

from critex.console import notice
from critex.ranges import NonNegative

AlphaOption = NonNegative | Literal["auto"]

RATIO = 0.1
"""c, the same for every task."""
WARMUP = 1_000
"""Steps that the rule leaves out: the first scaled bonuses are spikes, since their running deviation is not settled."""
RECENT = 10_000
"""Steps that the reported share of the bonus covers, with exponentially falling weights."""
DENSE = 0.01
"""Share of steps with a reward from which on a bonus larger than the reward is worth a warning."""


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


class Alpha:
    r"""α in force: the number given, or with `auto`

        α = c · max(σ[R], 1) / σ[B],    R ← γR + r,  B ← γB + β,

    with the running standard deviations σ of the discounted sums of rewards and of bonuses since the beginning of the
    episode. Policies differ by their returns, so this is where the bonus is given c times the weight of the reward, whatever
    the unit of either, the length of episodes, and how rare rewards are. Smaller returns count as 1: while only
    costs or nothing at all has been found, a goal that pays 1 may still be out there. σ covers the whole run, so that
    αβ still falls as β does.

    `observe` takes rewards and bonuses in the order of time, in the unit in which the algorithm adds them.
    """

    def __init__(self, option: float | str, gamma: float = 0.99, in_reward: bool = True) -> None:
        self.rule = option if isinstance(option, str) else ""
        self.value: float = RATIO if self.rule else float(option)
        self.gamma, self.in_reward = gamma, in_reward
        self._steps = 0
        self._sums: tuple[list[float], list[float]] = ([], [])  # R and B of each environment
        self._moments = (Moments(), Moments())  # of R and B
        self._recent = [0.0] * 4  # Σ|αβ|, Σ|r|, steps with a reward, steps
        self._warned = False

    def observe(self, reward: Tensor, bonus: Tensor, ended: Tensor, continued: bool = True) -> float:
        """Add steps [N] or [T, N], and return α; `continued`: they follow those of the last call."""
        if not (self.rule or self.value):
            return self.value
        rewards, bonuses = reward.flatten().tolist(), bonus.flatten().tolist()
        if self.rule:
            if not (continued and self._steps):
                self._sums = ([0.0] * reward.shape[-1], [0.0] * reward.shape[-1])
            self._add(rewards, bonuses, ended.flatten().tolist())
            of_reward, of_bonus = (moments.std() for moments in self._moments)
            self.value = RATIO * max(of_reward, 1.0) / (of_bonus or 1.0)
        n, falling = len(rewards), (1 - 1 / RECENT) ** len(rewards)
        new = (self.value * sum(map(abs, bonuses)), sum(map(abs, rewards)), n - rewards.count(0.0), n)
        self._recent = [falling * old + x for old, x in zip(self._recent, new, strict=True)]
        return self.value

    def _add(self, rewards: list[float], bonuses: list[float], ended: list[bool]) -> None:
        (returns, sums), (of_reward, of_bonus) = self._sums, self._moments
        for i, (r, b, end) in enumerate(zip(rewards, bonuses, ended, strict=True)):
            env = i % len(returns)
            returns[env] = self.gamma * returns[env] + r
            sums[env] = self.gamma * sums[env] + b
            self._steps += 1
            if self._steps > WARMUP:
                of_reward.add(returns[env])
                of_bonus.add(sums[env])
            if end:
                returns[env] = sums[env] = 0.0

    def metrics(self) -> dict[str, float]:
        """α, and the share of the bonus, Σ|αβ| / (Σ|αβ| + Σ|r|) of recent steps; warns once where it is the larger part."""
        bonus, reward, rewarded, steps = self._recent
        if not bonus:
            return {}
        if self.in_reward and not self._warned and bonus > reward and rewarded > DENSE * steps:
            self._warned = True
            hint = "" if self.rule else "; if returns suffer, try a smaller --alpha, or --alpha auto"
            notice(
                f"the bonus outweighs the reward: αβ is {bonus / reward:.3g} times as large per step{hint}"
            )
        return {"alpha": self.value, "bonus_share": bonus / (bonus + reward)}

    def state_dict(self) -> dict[str, Any]:
        """Everything, in plain numbers."""
        moments = [[m.count, m.mean, m.squares] for m in self._moments]
        sums = [list(column) for column in self._sums]
        return {
            **{"value": self.value, "steps": self._steps, "sums": sums, "moments": moments},
            **{"recent": list(self._recent), "warned": self._warned},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there."""
        self.value, self._steps = state["value"], state["steps"]
        self._sums = (list(state["sums"][0]), list(state["sums"][1]))
        self._moments = (Moments(*state["moments"][0]), Moments(*state["moments"][1]))
        self._recent, self._warned = list(state["recent"]), state["warned"]
