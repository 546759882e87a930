"""One Gram matrix in float64 on the CPU, exact and fast.

Everything here is one idea, the growing Cholesky factor. Write A = A₀ + ΦᵀΦ, with a base A₀ whose inverse is known and
the k rows Φ that came since. The matrix I + ΦA₀⁻¹Φᵀ = LLᵀ then gives every bonus (Woodbury),

    φᵀA⁻¹φ = φᵀA₀⁻¹φ − ‖w‖²,    w = L⁻¹ΦA₀⁻¹φ,

and (w, √(1 + φᵀA⁻¹φ)) is the next row of L. The three forms are three uses of it:

- dual:   the base is λI, which costs nothing to hold or to invert; a step is O(kd + k²), until k reaches d;
- primal: the base is dense, kept with its inverse; a step is one symmetric product, O(d²), and a full block of pending
  rows is folded into the base at BLAS-3 speed;
- block:  n rows at once extend L by n rows, and all their sequential bonuses fall out of one factorisation.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import dgemv, dsymm, dsymv, dsyrk, dtpsv, dtrsm  # type: ignore[import-untyped]
from scipy.linalg.lapack import dpotrf, dpotri, dtpttr, dtrttp  # type: ignore[import-untyped]
from torch import Tensor, nn

Array = NDArray[np.float64]

BLOCK = 48
"""Pending rows that a dense base collects before they are folded in."""
DRIFT = 1e-9
"""Relative error of a bonus, measured at each fold, above which A₀⁻¹ is computed anew."""
PENDING, SINCE, CLAMPED = range(
    3
)  # slots of `counts`: rows in Φ, rows since A₀⁻¹ was exact, negative bonuses seen


def mirrored(triangle: Array) -> Array:
    """The full symmetric matrix of which BLAS keeps one triangle (the upper one in row order)."""
    upper = np.triu(triangle)
    return cast(Array, upper + np.triu(upper, 1).T)


class ExactMemory(nn.Module):
    """A = λI + Σφφᵀ and its quadratic form, float64 on the CPU. See the module's text for the mathematics.

    Buffers, with k = `counts[PENDING]` and an empty base meaning A₀ = λI:
    `rows` Φ [≥k, d], `factor` L by rows, packed [≥k(k+1)/2], `images` ΦA₀⁻¹ [≥k, d] (dense base only),
    `outer` A₀ − λI [d, d], `inverse` A₀⁻¹ [d, d], `mark` Σφφᵀ at the last increment, `mass` Σ‖φ‖² [1], `counts` [3].
    Room beyond k is not part of the state: `state_dict` leaves it out.
    """

    rows: Tensor
    factor: Tensor
    images: Tensor
    outer: Tensor
    inverse: Tensor
    mark: Tensor
    mass: Tensor
    counts: Tensor

    def __init__(self, dim: int, ridge: float) -> None:
        super().__init__()
        self.dim, self.ridge = dim, ridge
        none = np.empty((0, dim))
        self._put(rows=none, images=none, factor=np.empty(0), outer=none, inverse=none, mark=none)
        self._put(mass=np.zeros(1), counts=np.zeros(3, dtype=np.int64))

    # -- state: buffers, and numpy views of them for BLAS ----------------------------------------------------------

    def _put(self, **arrays: NDArray[Any]) -> None:
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array))
        self._bind()

    def _bind(self) -> None:
        """Point the numpy views at the buffers again; to be called whenever a buffer was replaced."""
        for name, buffer in self._buffers.items():
            assert buffer is not None
            setattr(self, "_" + name, buffer.numpy())
        self._dense = self.inverse.numel() > 0
        self._unit = 1.0 if self._dense else 1.0 / self.ridge  # ΦA₀⁻¹φ = unit · Φu, with u as in `step`
        self._limit = BLOCK if self._dense else max(BLOCK, self.dim)
        self._root: Array | None = None  # Cholesky factor of a dense base, made when first needed

    def _apply(self, fn: Any, recurse: bool = True) -> ExactMemory:
        super()._apply(fn, recurse)
        self._bind()
        return self

    def __getstate__(self) -> dict[str, Any]:
        views = {"_" + name for name in self._buffers}
        return {name: value for name, value in self.__dict__.items() if name not in views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._bind()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        k = int(self._counts[PENDING])
        used = {"rows": k, "images": k if self._dense else 0, "factor": k * (k + 1) // 2}
        for name, buffer in self._buffers.items():
            assert buffer is not None
            destination[prefix + name] = buffer[: used.get(name, len(buffer))].clone()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        missing, errors = args[2], args[4]
        found = {name: state_dict.get(prefix + name) for name in self._buffers}
        for name, value in found.items():
            if value is None:
                missing.append(prefix + name)
            elif name not in ("factor", "mass", "counts") and value.shape[-1:] != (self.dim,):
                errors.append(f"{prefix}{name} has shape {list(value.shape)}, this memory has dim {self.dim}")
        if not errors and all(value is not None for value in found.values()):
            self._put(**{name: value.detach().cpu().numpy().copy() for name, value in found.items()})

    # -- one row ---------------------------------------------------------------------------------------------------

    def step(self, phi: Array, mass: float) -> float:
        """φᵀA⁻¹φ of one row [d] with ‖φ‖² = mass, then A ← A + φφᵀ."""
        k = int(self._counts[PENDING])
        if k == len(self._rows) or (self._dense and k == len(self._images)):
            self._grow(k + 1)
        if self._dense:
            u = dsymv(1.0, self._inverse.T, phi, lower=1)  # u = A₀⁻¹φ
            bonus = float(phi.dot(u))
        else:
            u = phi  # u = λA₀⁻¹φ: the factor 1/λ goes into `unit`
            bonus = mass * self._unit
        at = k * (k + 1) // 2
        if k:
            c = dgemv(self._unit, self._rows.T[:, :k], u, trans=1)
            w = dtpsv(k, self._factor, c, trans=1, overwrite_x=1)
            bonus -= float(w.dot(w))
            self._factor[at : at + k] = w
        clamped = bonus < 0.0  # round-off; only here
        if clamped:
            bonus = 0.0
        self._factor[at + k] = math.sqrt(1.0 + bonus)
        self._rows[k] = phi
        if self._dense:
            self._images[k] = u
        self._advance(1, mass)
        if clamped:
            self._counts[CLAMPED] += 1
            self.refactorise()
        return bonus

    def _advance(self, n: int, mass: float) -> None:
        self._counts[PENDING] += n
        self._counts[SINCE] += n
        self._mass[0] += mass
        if self._counts[PENDING] >= self._limit:
            self._fold()

    def _grow(self, needed: int) -> None:
        """Make room for `needed` pending rows, doubling."""
        k = int(self._counts[PENDING])
        room = min(max(needed, 2 * len(self._rows), 16), max(needed, self._limit))
        rows, factor = np.empty((room, self.dim)), np.empty(room * (room + 1) // 2)
        images = np.empty((room if self._dense else 0, self.dim))
        rows[:k], factor[: k * (k + 1) // 2] = self._rows[:k], self._factor[: k * (k + 1) // 2]
        if self._dense:
            images[:k] = self._images[:k]
        self._put(rows=rows, factor=factor, images=images)

    # -- many rows -------------------------------------------------------------------------------------------------

    def _against(self, phi: Array) -> tuple[Array, Array]:
        """(ΦA₀⁻¹ [n, d], W [n, k]) of the rows phi [n, d]; then φᵀA⁻¹ψ = (φᵀA₀⁻¹)ψ − w_φᵀw_ψ."""
        u = dsymm(1.0, self._inverse.T, phi.T, lower=1).T if self._dense else phi / self.ridge
        k = int(self._counts[PENDING])
        c = self._rows[:k] @ u.T  # [k, n]
        return u, dtrsm(1.0, self._upper(k), c, trans_a=1).T if k else c.T

    def _upper(self, k: int) -> Array:
        """Lᵀ of the first k pending rows, [k, k] upper triangular."""
        return cast(Array, dtpttr(k, self._factor[: k * (k + 1) // 2])[0])

    def quadratic(self, phi: Array) -> Array:
        """φᵀA⁻¹φ of every row: [n, d] → [n]. Nothing changes."""
        u, w = self._against(phi)
        return cast(Array, np.maximum(np.einsum("nd,nd->n", u, phi) - np.einsum("nk,nk->n", w, w), 0.0))

    def extend(self, phi: Array, mass: Array) -> Array:
        """What `step` gives row after row: [n, d], ‖φ‖² [n] → [n]."""
        bonus = np.empty(len(phi))
        done = 0
        while done < len(phi):
            n = min(len(phi) - done, self._limit - int(self._counts[PENDING]))
            block = slice(done, done + n)
            bonus[block] = self._extend_block(phi[block], mass[block])
            done += n
        return bonus

    def _extend_block(self, phi: Array, mass: Array) -> Array:
        n, k = len(phi), int(self._counts[PENDING])
        if n == 1:
            return np.array([self.step(phi[0], float(mass[0]))])
        u, w = self._against(phi)
        if self._dense:
            kernel = u @ phi.T
        else:
            kernel = dsyrk(self._unit, phi.T, trans=1, lower=1)  # ΦΦᵀ/λ, lower triangle
        if k:
            kernel = kernel - w @ w.T
        before = kernel.diagonal().copy()  # φᵀA⁻¹φ before any row of the block
        kernel[np.diag_indices(n)] += 1.0
        lower, failed = dpotrf(kernel, lower=1, clean=1)
        diagonal = lower.diagonal().copy()
        lower[np.diag_indices(n)] = 0.0
        bonus = before - np.einsum("ij,ij->i", lower, lower)
        lower[np.diag_indices(n)] = diagonal
        if failed or bonus.min() < 0.0:  # too much round-off for a block: go by single rows, which clamp
            return np.array([self.step(row, float(m)) for row, m in zip(phi, mass, strict=True)])
        self._append(phi, u, w, lower)
        self._advance(n, float(mass.sum()))
        return cast(Array, bonus)

    def _append(self, phi: Array, u: Array, w: Array, lower: Array) -> None:
        n, k = len(phi), int(self._counts[PENDING])
        if k + n > len(self._rows) or (self._dense and k + n > len(self._images)):
            self._grow(k + n)
        self._rows[k : k + n] = phi
        if self._dense:
            self._images[k : k + n] = u
        if k == 0:
            self._factor[: n * (n + 1) // 2] = dtrttp(lower.T)[0]
            return
        for i in range(n):
            at = (k + i) * (k + i + 1) // 2
            self._factor[at : at + k] = w[i]
            self._factor[at + k : at + k + i + 1] = lower[i, : i + 1]

    # -- the base --------------------------------------------------------------------------------------------------

    def _whitened(self) -> Array:
        """V = L⁻¹ΦA₀⁻¹, as Vᵀ [d, k]: A⁻¹ = A₀⁻¹ − VᵀV."""
        k = int(self._counts[PENDING])
        images = self._images[:k] if self._dense else self._rows[:k] / self.ridge
        return cast(Array, dtrsm(1.0, self._upper(k), images.T, side=1)) if k else images.T

    def _fold(self) -> None:
        """A₀ ← A₀ + ΦᵀΦ, A₀⁻¹ ← A₀⁻¹ − VᵀV: the pending rows become part of the base."""
        k, v = int(self._counts[PENDING]), self._whitened()
        rows = self._rows[:k]
        if not self._dense:
            self._rebase(np.zeros((self.dim, self.dim)), np.eye(self.dim) / self.ridge)
        dsyrk(1.0, rows.T, 1.0, self._outer.T, lower=1, overwrite_c=1)
        dsyrk(-1.0, v, 1.0, self._inverse.T, lower=1, overwrite_c=1)
        self._counts[PENDING], self._root = 0, None
        # A refactorisation is d³, so at most one every 8d rows: it never costs more than the updates themselves.
        if self._counts[SINCE] >= 8 * self.dim and self._drift(rows[k - 1]) > DRIFT:
            self.refactorise()

    def _rebase(self, outer: Array, inverse: Array) -> None:
        """A₀ ← λI + outer, with its inverse and no pending rows."""
        if not self._dense:  # the dual form may have grown far beyond a block
            self._put(rows=np.empty((0, self.dim)), factor=np.empty(0))
        self._put(outer=outer, inverse=inverse)
        self._counts[PENDING] = 0

    def _drift(self, phi: Array) -> float:
        """Relative error of φᵀA₀⁻¹φ to first order, |uᵀ(A₀u − φ)| / φᵀu with u = A₀⁻¹φ; infinite where u is useless."""
        u = dsymv(1.0, self._inverse.T, phi, lower=1)
        residual = dsymv(1.0, self._outer.T, u, lower=1) + self.ridge * u - phi
        bonus = float(phi.dot(u))
        if bonus <= 0.0:
            return math.inf if phi.any() else 0.0
        return abs(float(u.dot(residual))) / bonus

    def _cholesky(self, outer: Array) -> Array | None:
        """Lower Cholesky factor of λI + outer, in F order; None if outer is not a sum of φφᵀ.

        A ridge below the round-off of a huge outer is lost already: the smallest one that is not then takes its place.
        """
        for ridge in (
            self.ridge,
            self.ridge + 4 * self.dim * np.finfo(np.float64).eps * float(np.trace(outer)),
        ):
            base = outer.T.copy(order="F")
            base[np.diag_indices(self.dim)] += ridge
            factor, failed = dpotrf(base, lower=1, clean=1, overwrite_a=1)
            if not failed:
                return cast(Array, factor)
        return None

    def refactorise(self) -> None:
        """A₀ ← A, and A₀⁻¹ anew from it."""
        self.add(np.zeros((self.dim, self.dim)), counted=True)

    # -- what the matrix says --------------------------------------------------------------------------------------

    def total(self) -> Array:
        """Σφφᵀ [d, d], symmetric to the bit."""
        rows = self._rows[: int(self._counts[PENDING])].T
        base = self._outer.T.copy(order="F") if self._dense else np.zeros((self.dim, self.dim), order="F")
        return mirrored(dsyrk(1.0, rows, 1.0, base, lower=1, overwrite_c=1).T if rows.size else base.T)

    def inverse_matrix(self) -> Array:
        """A⁻¹ [d, d], symmetric to the bit."""
        v = self._whitened()
        base = (
            self._inverse.T.copy(order="F")
            if self._dense
            else np.asfortranarray(np.eye(self.dim) / self.ridge)
        )
        return mirrored(dsyrk(-1.0, v, 1.0, base, lower=1, overwrite_c=1).T if v.size else base.T)

    def _base_root(self) -> Array | None:
        """Cholesky factor of A₀, kept while the base stays; None for A₀ = λI."""
        if self._dense and self._root is None:
            self._root = self._cholesky(self._outer)
        return self._root

    def sample(self, generator: torch.Generator | None) -> Array:
        """Δθ ~ N(0, A⁻¹) as A⁻¹(A₀^½ z₀ + Φᵀz₁) with z standard normal: the covariance is A⁻¹(A₀ + ΦᵀΦ)A⁻¹ = A⁻¹."""
        k = int(self._counts[PENDING])
        z = torch.randn(self.dim + k, generator=generator, dtype=torch.float64).numpy()
        root = self._base_root()
        y = (math.sqrt(self.ridge) * z[: self.dim] if root is None else root @ z[: self.dim]) + z[
            self.dim :
        ] @ self._rows[:k]
        u = dsymv(1.0, self._inverse.T, y, lower=1) if self._dense else y / self.ridge
        if k:
            w = dtpsv(k, self._factor, self._rows[:k] @ u, trans=1)
            u = u - dtpsv(k, self._factor, w) @ (
                self._images[:k] if self._dense else self._rows[:k] / self.ridge
            )
        return cast(Array, u)

    def log_det(self) -> float:
        """log det A = log det A₀ + log det(I + ΦA₀⁻¹Φᵀ)."""
        k, root = int(self._counts[PENDING]), self._base_root()
        base = self.dim * math.log(self.ridge) if root is None else 2.0 * float(np.log(root.diagonal()).sum())
        diagonal = self._factor[np.cumsum(np.arange(1, k + 1)) - 1]
        return base + 2.0 * float(np.log(diagonal).sum())

    def effective_dimension(self) -> float:
        """tr(A⁻¹(A − λI)) = d − λ tr A₀⁻¹ + λ‖V‖²."""
        base = self.dim - self.ridge * float(np.trace(self._inverse)) if self._dense else 0.0
        return base + self.ridge * float((self._whitened() ** 2).sum())

    # -- changes from outside --------------------------------------------------------------------------------------

    def reset(self) -> None:
        """A ← λI."""
        none = np.empty((0, self.dim))
        if self._dense or self._mark.size:
            self._put(outer=none, inverse=none, images=none, mark=none)
        self._mass[0] = 0.0
        self._counts[PENDING] = self._counts[SINCE] = 0

    def increment(self) -> Array:
        """Σφφᵀ since the last call, [d, d]."""
        total = self.total()
        difference = total - self._mark if self._mark.size else total
        self._put(mark=total)
        return difference.copy()

    def add(self, increment: Array, *, counted: bool) -> bool:
        """A ← A + increment, [d, d]; `counted` if it is to show in our own next increment. False: A + it is not positive."""
        outer = self.total() + increment
        factor = self._cholesky(outer)
        if factor is None:
            return False
        if not counted:
            self._put(mark=increment + self._mark if self._mark.size else increment.copy())
        self._rebase(outer, dpotri(factor, lower=1)[0].T)
        self._root = factor
        self._mass[0] += float(np.trace(increment))
        self._counts[SINCE] = 0
        return True

    def rebuild(self, phi: Array, mass: Array) -> None:
        """A ← λI + Σφφᵀ over the rows phi [n, d]; the next increment counts from here."""
        self.reset()
        if len(phi) < self.dim or not self.add(mirrored(dsyrk(1.0, phi.T, lower=1).T), counted=True):
            self.extend(phi, mass)
        self._put(mark=self.total())
