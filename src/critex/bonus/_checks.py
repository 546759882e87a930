"""Input validation: arrays of the right shape, or a ValueError that says what is expected."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Features = Tensor | NDArray[Any] | Sequence[Any]


class NotFinite(ValueError):
    """A feature or bonus is not finite, or too large to be squared: the network behind it has diverged."""


def trusted_mass(ridge: float, dtype: torch.dtype) -> float:
    """The Σ‖φ‖² up to which the relative error of a bonus, at most 100·ε·(1 + Σ‖φ‖²/λ), stays below 1e-3."""
    return (1e-5 / torch.finfo(dtype).eps - 1.0) * ridge


def warn_inaccurate(ridge: float, dtype: torch.dtype) -> None:
    """Warn that Σ‖φ‖² exceeds the trusted mass; the text never changes, so the default filter shows it once."""
    warnings.warn(
        f"the squared norms of phi add up to more than {trusted_mass(ridge, dtype):.1e}, where rounding in {dtype} can "
        "change a bonus by more than 1e-3 of its value: scale phi down, or raise ridge",
        RuntimeWarning,
        stacklevel=5,
    )


def refuse(phi: Tensor | NDArray[Any]) -> None:
    """Raise the error for features whose squared norm is not finite."""
    values = phi.cpu().numpy() if isinstance(phi, Tensor) else phi
    where = np.argwhere(~np.isfinite(values))
    if len(where):
        at = tuple(where[0].tolist())
        found = f"{values[at]} at {list(at)} ({len(where)} of {values.size} entries)"
        raise NotFinite(f"phi must be finite, got {found}: its network has diverged or was given NaN")
    largest = np.abs(values).max()
    raise NotFinite(
        f"phi must be smaller, got an entry of {largest:.1e}: phi·phi / ridge overflows {values.dtype}"
    )


def indices(memory: Any, shape: tuple[int, ...], memories: int) -> NDArray[Any]:
    """The memory of each row, flattened; `shape` is the shape of the rows."""
    index = memory.detach().cpu().numpy() if isinstance(memory, Tensor) else np.asarray(memory)
    whole = index.dtype.kind in "iu"
    if not whole or (index.size and not 0 <= index.min() <= index.max() < memories):
        raise ValueError(f"memory must be an index from 0 to {memories - 1}, got {memory}")
    try:
        return np.broadcast_to(index, shape).reshape(-1)
    except ValueError:
        found = f"memory of shape {list(index.shape)}"
        raise ValueError(f"{found} does not broadcast to the {list(shape)} rows of phi") from None


def booleans(mask: Any, shape: tuple[int, ...], name: str) -> NDArray[np.bool_]:
    """A mask of exactly this shape."""
    values = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    if values.shape != shape or values.dtype != np.bool_:
        found = f"{values.dtype} of shape {list(values.shape)}"
        raise ValueError(f"{name} must be booleans of shape {list(shape)}, got {found}")
    return values


def summed_outer_products(increment: Features, shape: tuple[int, int, int]) -> Tensor:
    """Σφφᵀ for each memory, [M, d, d], or [d, d] for a single one: finite and symmetric."""
    added = torch.as_tensor(increment).detach()
    if shape[0] == 1 and added.ndim == 2:
        added = added[None]
    if tuple(added.shape) != shape:
        raise ValueError(f"increment must have shape {list(shape)}, got {list(added.shape)}")
    if not bool(added.isfinite().all()):
        raise ValueError(
            f"increment must be finite, got {int((~added.isfinite()).sum())} NaN or infinite entries"
        )
    skew = float((added - added.mT).abs().max())
    if skew > 1e-6 * float(added.abs().max()):
        raise ValueError(
            f"increment must be symmetric, as a Gram's increment() is, got entries {skew:.1e} apart"
        )
    return (added + added.mT) / 2
