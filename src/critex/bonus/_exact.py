"""Bonuses in float64 on the CPU, exact and fast.

A memory is in one of two forms, and both take a whole block of rows as well as a single one.

Dual (kernel) form, until a memory has d rows. With the k rows Φ seen so far, I + ΦΦᵀ/λ = LLᵀ, and

    φᵀA⁻¹φ = ‖φ‖²/λ − ‖w‖²,    w = L⁻¹Φφ/λ,

where (w, √(1 + φᵀA⁻¹φ)) is the next row of L. It costs O(kd + k²) per row and needs no d×d matrix.

Primal form, from then on. A⁻¹ ← A⁻¹ − vvᵀ with v = A⁻¹φ/√(1 + φᵀA⁻¹φ), on one triangle, O(d²) per row. Writing the
triangle costs more than reading it, so the last few v are buffered in V, and A⁻¹φ is computed as the product with the
triangle minus VᵀVφ. The rows are buffered in Φ and added to A in blocks; A is kept to recompute A⁻¹ when it drifts.

A block of n rows, given A: the Cholesky factor of I + ΦA⁻¹Φᵀ has L_tt² = 1 + b_t, where b_t is the bonus of row t
after the rows before it. One factorisation gives all of them, b_t = k_tt − Σ_{j<t} L_tj².
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import dgemv, dsymm, dsymv, dsyrk, dtpsv, dtrmm, dtrsm  # type: ignore[import-untyped]
from scipy.linalg.lapack import dpotrf  # type: ignore[import-untyped]

from ._checks import trusted_mass, warn_inaccurate
from ._memories import CLAMPED, ROWS, WAITING, Array, Memories, mirrored, packed

FEW = 4
"""Up to here, products of single rows with A⁻¹ are faster than one with all of them, for which BLAS copies A⁻¹."""
BLOCK = 64
"""Rows of a rollout that a primal memory processes as one block."""


class ExactForm(Memories):
    """φᵀA⁻¹φ of single rows, of one row for every memory, and of whole rollouts."""

    # Single rows.

    def _bind(self) -> None:
        super()._bind()
        self.steps = [self._stepper(i) for i in range(self.memories)]

    def step(self, i: int, phi: NDArray[Any]) -> float:
        """φᵀA⁻¹φ of one row [d], then A ← A + φφᵀ. If φ is not finite: NaN, and nothing changes."""
        return self.steps[i](phi)

    def _stepper(self, i: int) -> Callable[[NDArray[Any]], float]:
        """`step` of memory i as a closure over its arrays: looking them up each time would take a fifth of a step."""
        counts, mass, ridge, unit, primal = (
            self._counts,
            self._mass,
            self.ridge,
            1.0 / self.ridge,
            self._primal,
        )
        rows, factor, room, limit = list(self._rows[i]), self._factor[i], self._room, self._limit
        rows_t = self._rows[i].T
        inverse, recent = (
            (self._each_inverse[i], self._recent[i]) if len(self._inverse) else (None, np.empty((1, 0)))
        )
        slots, late_rows = list(recent), [recent[:n].T for n in range(len(recent) + 1)]
        trusted = trusted_mass(ridge, torch.float64)
        largest = np.finfo(np.float64).max * min(1.0, ridge)  # the largest ‖φ‖² whose bonus is finite

        def step(phi: NDArray[Any]) -> float:
            k = counts.item(i, ROWS)
            if k >= room:
                self._grow(k + 1)
                return self.step(i, phi)
            row = rows[k]  # the next row; not part of the memory until it is counted
            row[:] = phi
            squared = row.dot(row).item()
            if not squared <= largest:
                return math.nan
            bonus: float
            if primal[i]:
                u = dsymv(1.0, inverse, row)
                late = k % len(slots)
                if late:
                    v = late_rows[late]
                    u = dgemv(-1.0, v, dgemv(1.0, v, row, trans=1), 1.0, u, overwrite_y=1)
                bonus = row.dot(u).item()
                if bonus < 0.0:
                    return self._clamp(i, row)
                np.multiply(u, 1.0 / math.sqrt(1.0 + bonus), out=slots[late])
                if late + 1 == len(slots):
                    dsyrk(-1.0, late_rows[-1], 1.0, inverse, overwrite_c=1)
            else:
                bonus = squared / ridge
                end = k * (k + 1) // 2 + k
                if k:
                    w = dtpsv(k, factor, dgemv(unit, rows_t[:, :k], row, trans=1), trans=1, overwrite_x=1)
                    bonus -= w.dot(w).item()
                    if bonus < 0.0:
                        return self._clamp(i, row)
                    factor[end - k : end] = w
                factor[end] = math.sqrt(1.0 + bonus)
            mass[i] = total = mass.item(i) + squared
            counts[i, ROWS] = k + 1
            if k + 1 >= WAITING and (primal[i] or k + 1 >= limit):
                self._fold(i)
            if total > trusted:
                warn_inaccurate(ridge, torch.float64)
            return bonus

        return step

    def _clamp(self, i: int, phi: Array) -> float:
        """Clamp to zero a bonus that round-off made negative: count it, and recompute A⁻¹."""
        self._counts[i, CLAMPED] += 1
        self.add(i, np.outer(phi, phi), counted=True)
        return 0.0

    def step_all(self, phi: Array, mass: Array) -> Array:
        """`step` of every memory with its own row: [M, d] → [M]."""
        k = self._counts[:, ROWS]
        most = int(k.max())
        # In a batch, every memory costs as much as the longest, and it takes a dozen to amortise the calls.
        apart = self.memories < 12 or k.min() == 0 or k.sum() < 0.75 * most * self.memories
        if apart or any(self._primal):
            return np.array([self.step(i, row) for i, row in enumerate(phi)])
        if most >= self._room:
            self._grow(most + 1)
        w = np.matmul(self._rows[:, :most], phi[:, :, None])[:, :, 0]
        w /= self.ridge
        lengths, ragged = k.tolist(), int(k.min()) < most
        if ragged:
            w[np.arange(most) >= k[:, None]] = 0.0
        for n, factor, row in zip(lengths, self._each_factor, w, strict=True):
            dtpsv(n, factor, row, trans=1, overwrite_x=1)
        bonus = mass / self.ridge - np.einsum("mk,mk->m", w, w)
        if bonus.min() < 0.0:
            return np.array([self.step(i, row) for i, row in enumerate(phi)])
        self._rows[np.arange(self.memories), k] = phi
        ends = k * (k + 1) // 2 + k
        self._factor[np.arange(self.memories), ends] = np.sqrt(1.0 + bonus)
        if ragged:
            for n, end, factor, row in zip(lengths, ends.tolist(), self._each_factor, w, strict=True):
                factor[end - n : end] = row[:n]
        else:
            self._factor[:, ends[0] - most : ends[0]] = w
        self._mass += mass
        k += 1
        for i in np.flatnonzero(k >= self._limit).tolist():
            self._fold(i)
        return cast(Array, bonus)

    # Many rows.

    def quadratic(self, i: int, phi: Array) -> Array:
        """φᵀA⁻¹φ of every row: [n, d] → [n]. Nothing changes."""
        if self._primal[i]:
            square, w = _squares(self._each_inverse[i], phi), phi @ self._late(i).T
        else:
            u, w = self._against(i, phi)
            square = np.einsum("nd,nd->n", u, phi)
        return cast(Array, np.maximum(square - np.einsum("nk,nk->n", w, w), 0.0))

    def extend(self, i: int, phi: Array, mass: Array) -> Array:
        """The same as `step` row after row, but in blocks: [n, d] and ‖φ‖² [n] → [n]."""
        bonus = np.empty(len(phi))
        at = 0
        if self._primal[i] and len(self._seen(i)):
            self._fold(i)
        while at < len(phi):
            room = BLOCK if self._primal[i] else self._limit - self._counts.item(i, ROWS)
            block = slice(at, at + room)
            bonus[block] = self._extend_block(i, phi[block], mass[block])
            at = block.stop
        return bonus

    def _extend_block(self, i: int, phi: Array, mass: Array) -> Array:
        n = len(phi)
        u, w = self._against(i, phi)
        # ΦA⁻¹Φᵀ; in the dual form one triangle only, which is half the work
        kernel = u @ phi.T if self._primal[i] else dsyrk(1.0 / self.ridge, phi.T, trans=1, lower=1)
        if w.size:
            kernel = kernel - w @ w.T
        diagonal = kernel.reshape(-1, order="A")[:: n + 1]
        bonus = diagonal.copy()
        diagonal += 1.0
        lower, failed = dpotrf(kernel, lower=1, clean=1)
        diagonal = lower.reshape(-1, order="F")[:: n + 1]
        roots = diagonal.copy()
        diagonal[:] = 0.0
        bonus -= np.einsum("ij,ij->i", lower, lower)
        diagonal[:] = roots
        if failed or bonus.min() < 0.0:  # too much round-off for a block; single rows can be clamped
            return np.array([self.step(i, row) for row in phi])
        self._mass[i] += mass.sum()
        if self._primal[i]:
            v = dtrsm(1.0, lower, u.T, side=1, lower=1, trans_a=1)  # A⁻¹ ← A⁻¹ − VᵀV with V = L⁻¹ΦA⁻¹
            dsyrk(-1.0, v, 1.0, self._each_inverse[i], overwrite_c=1)
            self._add_to_outer(i, phi)
        else:
            self._append(i, phi, w, lower)
        return cast(Array, bonus)

    def _against(self, i: int, phi: Array) -> tuple[Array, Array]:
        """u [n, d] and w [n, k] with φᵀA⁻¹ψ = uᵀψ − wᵀw_ψ. Primal: u = A⁻¹φ without the buffered
        updates, w = Vφ. Dual: u = φ/λ."""
        if self._primal[i]:
            return dsymm(1.0, self._each_inverse[i], phi.T).T, phi @ self._late(i).T
        u = phi / self.ridge
        w = self._seen(i) @ u.T  # [k, n]
        return u, dtrsm(1.0, self._upper(i), w, trans_a=1).T if w.size else w.T

    def _append(self, i: int, phi: Array, w: Array, lower: Array) -> None:
        """Append n rows to a dual memory, and n rows (w, lower) to L."""
        n, k = len(phi), self._counts.item(i, ROWS)
        if k + n > self._room:
            self._grow(k + n)
        self._rows[i, k : k + n] = phi
        if k == 0:
            self._factor[i, : n * (n + 1) // 2] = packed(lower)
        else:
            end = k * (k + 1) // 2
            for t in range(n):
                self._factor[i, end : end + k] = w[t]
                self._factor[i, end + k : end + k + t + 1] = lower[t, : t + 1]
                end += k + t + 1
        self._counts[i, ROWS] = k + n
        if k + n >= self._limit:
            self._fold(i)

    def rebuild(self, i: int, phi: Array, mass: Array) -> None:
        """A ← λI + Σφφᵀ over the rows phi [n, d]; the next increment counts from here."""
        self.reset(i)
        if len(phi) < self.dim or not self.add(i, mirrored(dsyrk(1.0, phi.T).T), counted=True):
            self.extend(i, phi, mass)
        self.marked(i)[...] = self.total(i)


def _squares(inverse: Array, phi: Array) -> Array:
    """φᵀA⁻¹φ of every row [n, d], from one triangle T of A⁻¹: 2φᵀTφ − Σ_j (A⁻¹)_jj φ_j², half the products of A⁻¹φ."""
    if len(phi) <= FEW:
        return np.array([row @ dsymv(1.0, inverse, row) for row in phi])
    twice = dtrmm(2.0, inverse, phi.T).T
    return cast(Array, np.einsum("nd,nd->n", twice, phi) - (phi * phi) @ inverse.diagonal())
