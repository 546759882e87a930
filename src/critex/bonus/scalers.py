"""Bonus scaling: divide by a running standard deviation, without subtracting the mean."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ._checks import NotFinite


class Scaler(nn.Module):
    """`forward(b)` updates the moments with b and returns b scaled; `scale(b)` divides by the current std, no update."""

    def std(self) -> float:
        """The current divisor: 1 while no standard deviation is defined."""
        raise NotImplementedError

    def scale(self, b: Tensor) -> Tensor:
        return b / self.std()


def _checked(b: Tensor) -> Tensor:
    if not bool(b.isfinite().all()):
        raise NotFinite(
            f"bonuses must be finite, got {int((~b.isfinite()).sum())} NaN or infinite of {b.numel()}"
        )
    return b.detach()


def _or_one(std: float, mean: float) -> float:
    """A divisor: 1 for a std of zero, up to the round-off of features in single precision, which would blow a constant
    bonus up by 10⁷ or more."""
    return std if std > 1e-6 * abs(mean) else 1.0


class NoScaler(Scaler):
    """b → b."""

    def forward(self, b: Tensor) -> Tensor:
        return b

    def std(self) -> float:
        return 1.0


class WelfordScaler(Scaler):
    r"""Algorithm 1 of the paper: b/√(ν²/N), with the sample itself counted first.

    N ← N + 1; δ = b − μ; μ ← μ + δ/N; ν² ← ν² + δ(b − μ). A tensor of any shape is processed in row order; each entry is
    scaled by the moments up to and including itself, exactly as in single calls.

    The first sample has ν² = 0. Wherever the std is zero, meaning std ≤ 1e-6·|μ|, the bonus is returned unscaled. Two samples
    that nearly agree give a tiny std and thus a spike; the first `warmup` samples therefore update the moments but are
    returned unscaled.
    """

    _saved = ("mean", "nu_squared", "count")
    _dtypes = (torch.float64, torch.float64, torch.int64)

    def __init__(self, warmup: int = 0) -> None:
        super().__init__()
        if warmup < 0:
            raise ValueError(f"warmup must be a number of samples, 0 or more, got {warmup}")
        self.warmup = warmup
        self.moments = [0.0, 0.0, 0.0]  # μ, ν², N; as tensors they would cost more than all the rest

    def forward(self, b: Tensor) -> Tensor:
        values = b.tolist() if b.ndim == 1 else b.flatten().tolist()
        if not math.isfinite(sum(values)):  # cheaper than a check on the tensor; false alarms are rare
            _checked(b)
        mean, nu_squared, count = self.moments
        scaled = []
        for value in values:
            count += 1.0
            delta = value - mean
            mean += delta / count
            nu_squared += delta * (value - mean)
            scaled.append(value / self._std(mean, nu_squared, count))
        self.moments[:] = mean, nu_squared, count
        if len(scaled) == 1:
            return torch.full_like(b, scaled[0], requires_grad=False)
        return torch.tensor(scaled, dtype=b.dtype, device=b.device).reshape(b.shape)

    def std(self) -> float:
        return self._std(*self.moments)

    def _std(self, mean: float, nu_squared: float, count: float) -> float:
        if count <= self.warmup or count == 0.0:
            return 1.0
        return _or_one(math.sqrt(nu_squared / count), mean)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, dtype, moment in zip(self._saved, self._dtypes, self.moments, strict=True):
            destination[prefix + name] = torch.tensor(moment, dtype=dtype)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        absent = [prefix + name for name in self._saved if prefix + name not in state_dict]
        args[2].extend(absent)  # the missing keys
        if not absent:
            self.moments = [float(state_dict[prefix + name]) for name in self._saved]


class BatchMomentScaler(Scaler):
    r"""The learner-side moments of the released code, for batches b [T, B]: b/√(m₂/n) over all batches so far.

    Batches are merged by m₂ ← m₂ + Σ(b − m)² + (m − Σ/n)²·n·n_b/(n + n_b), n ← n + n_b. The released code counts n_b = T rows
    while it sums T·B entries, so its "mean" m is B times the mean, and std² → B(σ² + (B − 1)²μ²). The coefficients of the
    released runs are tuned to that, hence `count_rows=True`. The default counts entries and gives the true std.
    """

    total: Tensor
    m2: Tensor
    count: Tensor

    def __init__(self, count_rows: bool = False) -> None:
        super().__init__()
        self.count_rows = count_rows
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))
        self.register_buffer("m2", torch.zeros((), dtype=torch.float64))
        # The released code starts the count at 1e-8 to avoid dividing by 0; with a true count, that would give a constant
        # bonus a variance.
        self.register_buffer("count", torch.full((), 1e-8 if count_rows else 0.0, dtype=torch.float64))

    def forward(self, b: Tensor) -> Tensor:
        if b.ndim < 1 or b.numel() == 0:
            raise ValueError(f"b must be a batch [T, B] with entries, got shape {list(b.shape)}")
        values = _checked(b).double()
        n = float(len(values) if self.count_rows else values.numel())
        count, total = float(self.count), float(values.sum())
        mean = total / n
        shift = mean - float(self.total) / count if count else 0.0
        self.m2 += float((values - mean).square().sum()) + count * n / (count + n) * shift**2
        self.count += n
        self.total += total
        return self.scale(b)

    def std(self) -> float:
        count = float(self.count)
        return _or_one(math.sqrt(float(self.m2) / count), float(self.total) / count) if count else 1.0
