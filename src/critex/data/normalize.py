"""Running normalisers of observations and rewards, kept outside the environment so that checkpoints include them.

They compute the same as gymnasium's NormalizeObservation and NormalizeReward, but for N environments that share one
set of statistics, and they clip to ±10, as is customary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

EPSILON = 1e-8
CLIP = 10.0

Array = NDArray[np.float64]


class Moments:
    """Running mean and population variance of vectors [d], in float64; in numpy, where small updates take microseconds.

    Starts with mean 0 and variance 1 at the weight of 10⁻⁴ samples, so that the first division is defined.
    """

    def __init__(self, *shape: int) -> None:
        self.mean: Array = np.zeros(shape)
        self.var: Array = np.ones(shape)
        self.count = 1e-4

    def update(self, x: Array) -> None:
        """Add a batch [N, d]; the order of batches does not matter."""
        n, before = len(x), self.count
        if n == 0:
            return
        self.count = total = before + n
        delta = (x[0] if n == 1 else x.mean(0)) - self.mean
        squares = self.var * before + delta * delta * (before * n / total)
        if n > 1:
            squares += x.var(0) * n
        self.mean = self.mean + delta * (n / total)
        self.var = squares / total

    def update_sequence(self, x: Array) -> Array:
        """Add T batches of scalars [T, N], one after the other; return the variance after each, [T]."""
        shifted = x - self.mean  # relative to the old mean; otherwise the squares below would cancel
        count = self.count + x.shape[1] * np.arange(1, len(x) + 1)
        mean = shifted.sum(1).cumsum() / count
        var: Array = (self.var * self.count + (shifted * shifted).sum(1).cumsum()) / count - mean * mean
        self.mean, self.var, self.count = self.mean + mean[-1], var[-1], float(count[-1])
        return var

    def state_dict(self) -> dict[str, Any]:
        """Mean, variance and count."""
        mean, var = (torch.from_numpy(np.array(x)) for x in (self.mean, self.var))
        return {"mean": mean, "var": var, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        if state["mean"].shape != self.mean.shape:
            raise ValueError(f"saved moments have shape {tuple(state['mean'].shape)}, not {self.mean.shape}")
        self.mean, self.var = np.array(state["mean"].numpy()), np.array(state["var"].numpy())
        self.count = state["count"]


class ObservationNormalizer:
    """x ↦ clip((x − mean) / √(var + 10⁻⁸), ±10) with the moments of every observation given to `update`."""

    def __init__(self, dim: int) -> None:
        self.moments = Moments(dim)

    def update(self, x: Tensor) -> None:
        """Add observations [N, d] to the statistics."""
        self.moments.update(x.numpy(force=True).astype(np.float64))

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise observations [..., d] to float32 with the current statistics, which do not change."""
        y = x.numpy(force=True) - self.moments.mean
        y /= np.sqrt(self.moments.var + EPSILON)
        np.minimum(y, CLIP, out=y)
        np.maximum(y, -CLIP, out=y)
        return torch.from_numpy(y.astype(np.float32)).to(x.device)

    def state_dict(self) -> dict[str, Any]:
        """The moments."""
        return self.moments.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.moments.load_state_dict(state)


class RewardNormalizer:
    """r ↦ clip(r / √(Var[R] + 10⁻⁸), ±10), with the running variance of the discounted return so far

        R ← γ·(1 − terminated)·R + r

    of each environment. The mean is not subtracted, so rewards keep their sign. R is not reset at truncations.
    """

    def __init__(self, gamma: float, num_envs: int) -> None:
        self.gamma = gamma
        self.moments = Moments()
        self.discounted: Array = np.zeros(num_envs)  # R

    def __call__(self, reward: Tensor, terminated: Tensor) -> Tensor:
        """Normalise the rewards of a rollout [T, N] in time order, updating the statistics at each step."""
        r = reward.numpy(force=True).astype(np.float64)
        decay = self.gamma * ~terminated.numpy(force=True)
        returns, last = np.empty_like(r), self.discounted
        for t in range(len(r)):
            returns[t] = last = decay[t] * last + r[t]
        self.discounted = last
        scale = np.sqrt(self.moments.update_sequence(returns) + EPSILON)
        return torch.from_numpy((r / scale[:, None]).clip(-CLIP, CLIP)).to(reward)

    def state_dict(self) -> dict[str, Any]:
        """The moments and R."""
        return {"moments": self.moments.state_dict(), "discounted": torch.from_numpy(self.discounted.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.moments.load_state_dict(state["moments"])
        self.discounted = state["discounted"].numpy().copy()
