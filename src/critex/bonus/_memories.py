"""The state of the exact form: Gram matrices in float64 on the CPU, dual for the first d rows and primal after that.

A dual memory is its k rows Φ and the Cholesky factor of I + ΦΦᵀ/λ = LLᵀ; there is no d×d matrix. At k = d it becomes
primal: it keeps A⁻¹ and, to recompute it when it drifts, A itself, to which new rows are added in blocks.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import dsymv, dsyrk, dtpsv, dtrsm  # type: ignore[import-untyped]
from scipy.linalg.lapack import dpotrf, dpotri, dtpttr, dtrttp  # type: ignore[import-untyped]

from ._arrays import Arrays

Array = NDArray[np.float64]

WAITING = 64
"""Rows that a primal memory buffers before adding them to A."""
LATE = 16
"""Updates that a primal memory buffers before writing them into A⁻¹; it divides WAITING."""
DRIFT = 1e-9
"""Relative error of a bonus above which A⁻¹ is recomputed; checked every 8d rows."""
ROWS, SINCE, CLAMPED, PRIMAL = range(4)  # columns of `counts`


def mirrored(triangle: Array) -> Array:
    """The full symmetric matrix from the triangle that BLAS keeps (the lower one, in row order)."""
    lower = np.tril(triangle)
    return lower + np.tril(lower, -1).T


def packed(lower: Array) -> Array:
    """A lower triangular matrix [k, k] stored row after row [k(k+1)/2], so that rows can be appended in place."""
    return cast(Array, dtrttp(lower.T)[0])


def unpacked(rows: Array, k: int) -> Array:
    """The transpose of what was packed, upper triangular and in Fortran order [k, k]."""
    return cast(Array, dtpttr(k, rows[: k * (k + 1) // 2])[0])


class Memories(Arrays):
    """A = λI + Σφφᵀ for each of M memories.

    Buffers:
        rows: Φ [M, ≥k, d]; all rows of a dual memory, the buffered rows of a primal one.
        factor: L, row after row [M, ≥k(k+1)/2], of dual memories.
        inverse, outer: A⁻¹ and Σφφᵀ without the buffered rows, one triangle of each [M, d, d]; empty while no memory
            is primal.
        recent: the buffered updates V [M, 16, d] in A⁻¹ = inverse − VᵀV; empty while no memory is primal.
        mark: the Σφφᵀ that `increment` has returned so far; empty before its first call.
        mass: Σ‖φ‖² [M].
        counts: [M, 4]: k, rows since the last drift check, clamped bonuses, whether primal.
    """

    _rows: Array
    _factor: Array
    _inverse: Array
    _recent: Array
    _outer: Array
    _mark: Array
    _mass: Array
    _counts: NDArray[np.int64]

    def __init__(self, dim: int, ridge: float, memories: int) -> None:
        super().__init__()
        self.dim, self.ridge, self.memories = dim, ridge, memories
        none = np.zeros((0, dim, dim))
        self._put(
            inverse=none,
            outer=none,
            mark=none,
            recent=none[:, :1],
            rows=np.zeros((memories, 0, dim)),
            factor=np.zeros((memories, 0)),
            mass=np.zeros(memories),
            counts=np.zeros((memories, 4), dtype=np.int64),
        )

    def _bind(self) -> None:
        super()._bind()
        self._limit = max(WAITING, self.dim)  # rows at which a memory becomes primal
        self._room = self._rows.shape[1]
        # Fortran order, as BLAS wants it; lists, because indexing an array costs as much as a small product.
        self._each_factor = list(self._factor)
        self._each_inverse = [inverse.T for inverse in self._inverse]
        self._each_outer = [outer.T for outer in self._outer]
        self._primal = [bool(flag) for flag in self._counts[:, PRIMAL]]
        self._roots: dict[int, Array] = {}  # Cholesky factors of λI + outer, computed on first use

    def _trimmed(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        k = int(self._counts[:, ROWS].max())
        used = {"rows": k, "factor": k * (k + 1) // 2}
        return array[:, : used[name]] if name in used else array

    def _problem(self, arrays: dict[str, NDArray[Any]]) -> str:
        m, d, counts = self.memories, self.dim, arrays["counts"]
        shapes: dict[str, set[tuple[int, ...]]] = {"mass": {(m,)}, "counts": {(m, 4)}}
        room = arrays["rows"].shape[1] if arrays["rows"].ndim == 3 else 0
        shapes |= {"rows": {(m, room, d)}, "factor": {(m, room * (room + 1) // 2)}}
        empty, full = (0, d, d), (m, d, d)
        inverse = arrays["inverse"].shape
        shapes |= {"mark": {empty, full}, "inverse": {empty, full}, "outer": {inverse}}
        shapes["recent"] = {(0, 1, d)} if inverse == empty else {(m, LATE, d), (m, 1, d)}
        for name, allowed in shapes.items():
            if arrays[name].shape not in allowed:
                return f"{name} of shape {list(arrays[name].shape)} does not fit {self}"
        used, flags = counts[:, ROWS], counts[:, PRIMAL]
        if counts.min() < 0 or used.max() > room or flags.max() > 1 or (flags.any() and inverse == empty):
            return f"counts {counts.tolist()} do not fit the other buffers"
        return ""

    def extra_repr(self) -> str:
        """For messages and `print`."""
        return f"dim={self.dim}, ridge={self.ridge}, memories={self.memories}"

    def _grow(self, needed: int) -> None:
        """Make room for `needed` rows, at least doubling the capacity."""
        room = max(needed, min(2 * self._room, self._limit), WAITING)
        rows = np.zeros((self.memories, room, self.dim))
        factor = np.zeros((self.memories, room * (room + 1) // 2))
        rows[:, : self._room], factor[:, : self._factor.shape[1]] = self._rows, self._factor
        self._put(rows=rows, factor=factor)

    # From dual to primal.

    def _seen(self, i: int) -> Array:
        """The rows Φ [k, d]: all rows of a dual memory, the buffered rows of a primal one."""
        return self._rows[i, : self._counts.item(i, ROWS)]

    def _late(self, i: int) -> Array:
        """The updates V of a primal memory that are not yet in `inverse`."""
        return self._recent[i, : self._counts.item(i, ROWS) % self._recent.shape[1]]

    def _upper(self, i: int) -> Array:
        """Lᵀ [k, k] of a dual memory."""
        return unpacked(self._factor[i], self._counts.item(i, ROWS))

    def _whitened(self, i: int) -> Array:
        """Vᵀ [d, k] of a dual memory, with V = L⁻¹Φ/λ: A⁻¹ = I/λ − VᵀV."""
        phi = self._seen(i)
        return cast(Array, dtrsm(1.0 / self.ridge, self._upper(i), phi.T, side=1)) if len(phi) else phi.T

    def _fold(self, i: int) -> None:
        """Add the rows Φ to `outer`; a dual memory becomes primal."""
        if self._primal[i]:
            late = self._late(i)
            if len(late):
                dsyrk(-1.0, late.T, 1.0, self._each_inverse[i], overwrite_c=1)
        else:
            self._become_primal(i, np.zeros((self.dim, self.dim)), self.inverse_matrix(i))
        rows = self._seen(i)
        self._counts[i, ROWS] = 0
        self._add_to_outer(i, rows)

    def _become_primal(self, i: int, outer: Array, inverse: Array) -> None:
        if not len(self._inverse):
            shape = (self.memories, self.dim, self.dim)
            late = LATE if self.dim >= 128 else 1  # for a small triangle, writing is as fast as reading
            recent = np.zeros((self.memories, late, self.dim))
            self._put(outer=np.zeros(shape), inverse=np.zeros(shape), recent=recent)
        self._outer[i], self._inverse[i] = outer, inverse
        self._roots.pop(i, None)
        self._counts[i, SINCE], self._counts[i, PRIMAL], self._primal[i] = 0, 1, True

    def _add_to_outer(self, i: int, phi: Array) -> None:
        dsyrk(1.0, phi.T, 1.0, self._each_outer[i], overwrite_c=1)
        self._roots.pop(i, None)
        self._counts[i, SINCE] += len(phi)
        # A new inverse is O(d³); at most one per 8d rows never costs more than the updates themselves.
        if self._counts[i, SINCE] >= 8 * self.dim:
            self._counts[i, SINCE] = 0
            if self._drift(i, phi[-1]) > DRIFT:
                self.refactorise(i)

    def _drift(self, i: int, phi: Array) -> float:
        """The relative error of φᵀA⁻¹φ to first order, |uᵀ(Au − φ)| / φᵀu with u = A⁻¹φ."""
        u = dsymv(1.0, self._each_inverse[i], phi)
        bonus = float(phi.dot(u))
        if bonus <= 0.0:
            return math.inf if phi.any() else 0.0
        residual = dsymv(1.0, self._each_outer[i], u) + self.ridge * u - phi
        return abs(float(u.dot(residual))) / bonus

    def _cholesky(self, outer: Array) -> Array | None:
        """Lower Cholesky factor of λI + outer, in Fortran order; None if outer is not a sum of φφᵀ.

        A ridge below the round-off of a huge outer is lost anyway; the smallest that is not then replaces it.
        """
        least = 4 * self.dim * np.finfo(np.float64).eps * float(np.trace(outer))
        for ridge in (self.ridge, self.ridge + least):
            matrix = outer.copy(order="F")
            np.fill_diagonal(matrix, matrix.diagonal() + ridge)
            factor, failed = dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
            if not failed:
                return cast(Array, factor)
        return None

    # Diagnostics.

    def heaviest(self) -> float:
        """The largest Σ‖φ‖² of any memory."""
        return self._mass.item(0) if self.memories == 1 else float(self._mass.max())

    def total(self, i: int) -> Array:
        """Σφφᵀ [d, d], symmetric to the bit."""
        none = np.zeros((self.dim, self.dim), order="F")
        outer, phi = self._each_outer[i].copy(order="F") if self._primal[i] else none, self._seen(i)
        return mirrored(dsyrk(1.0, phi.T, 1.0, outer, overwrite_c=1).T if len(phi) else outer.T)

    def inverse_matrix(self, i: int) -> Array:
        """A⁻¹ [d, d], symmetric to the bit."""
        if self._primal[i]:
            inverse, v = self._each_inverse[i].copy(order="F"), self._late(i).T
        else:
            inverse, v = np.asfortranarray(np.eye(self.dim) / self.ridge), self._whitened(i)
        return mirrored(dsyrk(-1.0, v, 1.0, inverse, overwrite_c=1).T if v.size else inverse.T)

    def inverse_matrices(self) -> Array:
        """A⁻¹ of every memory, [M, d, d]; in one operation if all are primal and no update is buffered."""
        if all(self._primal) and self._recent.shape[1] == 1:
            lower = np.tril(self._inverse)
            return lower + np.tril(lower, -1).swapaxes(1, 2)
        return np.stack([self.inverse_matrix(i) for i in range(self.memories)])

    def sample(self, i: int, generator: torch.Generator | None) -> Array:
        """Δθ ~ N(0, A⁻¹), as A⁻¹(A₀^½ z + Φᵀz′) with A = A₀ + ΦᵀΦ: its covariance is A⁻¹(A₀ + ΦᵀΦ)A⁻¹."""
        phi = self._seen(i)
        z = torch.randn(self.dim + len(phi), generator=generator, dtype=torch.float64).numpy()
        if self._primal[i]:
            if i not in self._roots:
                self._roots[i] = cast(Array, self._cholesky(self._outer[i]))
            y = self._roots[i] @ z[: self.dim] + z[self.dim :] @ phi
            late = self._late(i)
            return cast(Array, dsymv(1.0, self._each_inverse[i], y) - (late @ y) @ late)
        y = math.sqrt(self.ridge) * z[: self.dim] + z[self.dim :] @ phi
        if len(phi):
            w = dtpsv(len(phi), self._factor[i], phi @ y / self.ridge, trans=1)
            y = y - dtpsv(len(phi), self._factor[i], w) @ phi
        return cast(Array, y / self.ridge)

    def log_det(self, i: int) -> float:
        """log det A; for a dual memory d log λ + log det(I + ΦΦᵀ/λ)."""
        if self._primal[i]:
            return 2.0 * float(np.log(cast(Array, self._cholesky(self.total(i))).diagonal()).sum())
        ends = np.cumsum(np.arange(1, len(self._seen(i)) + 1)) - 1
        return self.dim * math.log(self.ridge) + 2.0 * float(np.log(self._factor[i, ends]).sum())

    def effective_dimension(self, i: int) -> float:
        """tr(A⁻¹(A − λI)) = d − λ tr A⁻¹; for a dual memory λ‖V‖²."""
        if self._primal[i]:
            trace = float(np.trace(self._inverse[i])) - float((self._late(i) ** 2).sum())
            return self.dim - self.ridge * trace
        return self.ridge * float((self._whitened(i) ** 2).sum())

    # Changes.

    def reset(self, i: int) -> None:
        """A ← λI."""
        self._counts[i, [ROWS, SINCE, PRIMAL]] = 0
        self._primal[i] = False
        self._mass[i] = 0.0
        if len(self._mark):
            self._mark[i] = 0.0

    def increment(self, i: int) -> Array:
        """Σφφᵀ since the last call, [d, d]."""
        total = self.total(i)
        difference = total - self.marked(i)
        self.marked(i)[...] = total
        return difference

    def marked(self, i: int) -> Array:
        """The Σφφᵀ that `increment` has returned so far, [d, d]; writable."""
        if not len(self._mark):
            self._put(mark=np.zeros((self.memories, self.dim, self.dim)))
        return cast(Array, self._mark[i])

    def add(self, i: int, increment: Array, *, counted: bool) -> bool:
        """A ← A + increment [d, d], unless that is not positive definite (False); `counted` in the next `increment`."""
        outer = self.total(i) + increment
        factor = self._cholesky(outer)
        if factor is None:
            return False
        if not counted:
            self.marked(i)[...] += increment
        self._counts[i, ROWS] = 0
        self._become_primal(i, outer, dpotri(factor, lower=1)[0])
        self._roots[i] = factor
        self._mass[i] += np.trace(increment)
        return True

    def refactorise(self, i: int) -> None:
        """Recompute A⁻¹ from A."""
        self.add(i, np.zeros((self.dim, self.dim)), counted=True)
