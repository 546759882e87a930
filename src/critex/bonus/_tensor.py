"""One Gram matrix in any dtype on any device: the primal form in plain tensor operations.

The CPU in float64 has the faster and more exact `ExactMemory`; this one serves float32 and accelerators. Float64 rollouts go
through the Cholesky form in blocks, float32 row by row: its factorisation would lose small bonuses.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCK = 128


class TensorMemory(nn.Module):
    """A = λI + Σφφᵀ with A⁻¹ kept by Sherman-Morrison, A⁻¹ ← A⁻¹ − vvᵀ with v = A⁻¹φ/√(1 + φᵀA⁻¹φ)."""

    inverse: Tensor
    outer: Tensor
    mark: Tensor
    mass: Tensor
    counts: Tensor

    def __init__(self, dim: int, ridge: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.dim, self.ridge = dim, ridge
        eye = torch.eye(dim, dtype=dtype, device=device)
        self.register_buffer("inverse", eye / ridge)  # A⁻¹ [d, d]
        self.register_buffer("outer", torch.zeros_like(eye))  # Σφφᵀ [d, d]
        self.register_buffer("mark", torch.zeros_like(eye))  # Σφφᵀ at the last increment
        self.register_buffer("mass", eye.new_zeros(1))  # Σ‖φ‖²
        self.register_buffer(
            "counts", torch.zeros(2, dtype=torch.int64, device=device)
        )  # rows since A⁻¹ was exact, clamped bonuses
        self._cached: tuple[int, Tensor] | None = None

    def step(self, phi: Tensor, mass: float) -> Tensor:
        """φᵀA⁻¹φ of one row [d], then A ← A + φφᵀ."""
        u = self.inverse @ phi
        bonus = phi.dot(u)
        clamped = int(bonus < 0)
        bonus.clamp_(min=0.0)
        v = u / (1.0 + bonus).sqrt()
        self.inverse.addr_(v, v, alpha=-1.0)
        self.outer.addr_(phi, phi)
        self._advance(1, mass, clamped)
        return bonus

    def quadratic(self, phi: Tensor) -> Tensor:
        """φᵀA⁻¹φ of every row: [n, d] → [n]. Nothing changes."""
        return ((phi @ self.inverse) * phi).sum(-1).clamp_(min=0.0)

    def extend(self, phi: Tensor, mass: Tensor) -> Tensor:
        """What `step` gives row after row: [n, d], ‖φ‖² [n] → [n]."""
        if phi.dtype != torch.float64:
            rows = zip(phi, mass.tolist(), strict=True)
            return torch.stack([self.step(row, m) for row, m in rows]) if len(phi) else mass.clone()
        blocks = zip(phi.split(BLOCK), mass.split(BLOCK), strict=True)
        return torch.cat([self._extend_block(rows, m) for rows, m in blocks])

    def _extend_block(self, phi: Tensor, mass: Tensor) -> Tensor:
        """All sequential bonuses of a block from one factorisation, I + ΦA⁻¹Φᵀ = LLᵀ."""
        u = phi @ self.inverse  # [n, d]
        kernel = u @ phi.T
        lower, failed = torch.linalg.cholesky_ex(
            kernel + torch.eye(len(phi), dtype=phi.dtype, device=phi.device)
        )
        if failed:  # round-off made it indefinite: go by single rows, each of which is clamped
            return torch.stack([self.step(row, m) for row, m in zip(phi, mass.tolist(), strict=True)])
        bonus = kernel.diagonal() - lower.tril(-1).square().sum(-1)
        v = torch.linalg.solve_triangular(lower, u, upper=False)
        self.inverse -= symmetric(v.T @ v)
        self.outer += symmetric(phi.T @ phi)
        self._advance(len(phi), float(mass.sum()), int((bonus < 0).sum()))
        return bonus.clamp_(min=0.0)

    def _advance(self, n: int, mass: float, clamped: int) -> None:
        self.mass += mass
        self.counts[0] += n + 8 * self.dim * clamped
        self.counts[1] += clamped
        if self.counts[0] >= 8 * self.dim:  # d³ once in 8d rows costs no more than the rows themselves
            self.refactorise()

    def _factor(self, outer: Tensor) -> Tensor | None:
        """Cholesky factor of λI + outer; a ridge below the round-off of a huge outer is raised to it. None: not a Σφφᵀ."""
        eye = torch.eye(self.dim, dtype=outer.dtype, device=outer.device)
        for ridge in (
            self.ridge,
            self.ridge + 4 * self.dim * torch.finfo(outer.dtype).eps * float(outer.trace()),
        ):
            factor, failed = torch.linalg.cholesky_ex(outer + ridge * eye)
            if not failed:
                return factor
        return None

    def refactorise(self) -> None:
        """A⁻¹ anew from A."""
        self.counts[0] = 0
        if (factor := self._factor(self.outer)) is not None:
            self.inverse.copy_(symmetric(torch.cholesky_inverse(factor)))

    def total(self) -> Tensor:
        """Σφφᵀ [d, d]."""
        return self.outer.clone()

    def inverse_matrix(self) -> Tensor:
        """A⁻¹ [d, d]."""
        return self.inverse.clone()

    def sample(self, generator: torch.Generator | None) -> Tensor:
        """Δθ = L⁻ᵀz ~ N(0, A⁻¹) with A = LLᵀ; L is kept while A stays."""
        z = torch.randn(self.dim, 1, generator=generator, dtype=self.outer.dtype, device=self.outer.device)
        return torch.linalg.solve_triangular(self._root().T, z, upper=True)[:, 0]

    def _root(self) -> Tensor:
        if self._cached is None or self._cached[0] != self.outer._version:
            factor = self._factor(self.outer)
            if factor is None:
                raise FloatingPointError("A is not positive definite to working precision; raise ridge")
            self._cached = (self.outer._version, factor)
        return self._cached[1]

    def log_det(self) -> float:
        """log det A."""
        return 2.0 * float(self._root().diagonal().log().sum())

    def effective_dimension(self) -> float:
        """tr(A⁻¹(A − λI)) = tr(A⁻¹Σφφᵀ)."""
        return float((self.inverse * self.outer).sum())

    def reset(self) -> None:
        """A ← λI."""
        self.inverse.zero_().diagonal().fill_(1.0 / self.ridge)
        for buffer in (self.outer, self.mark, self.mass, self.counts[:1]):
            buffer.zero_()

    def increment(self) -> Tensor:
        """Σφφᵀ since the last call, [d, d]."""
        difference = self.outer - self.mark
        self.mark.copy_(self.outer)
        return difference

    def add(self, increment: Tensor, *, counted: bool) -> bool:
        """A ← A + increment, [d, d]; `counted` if it is to show in our own next increment. False: A + it is not positive."""
        if self._factor(self.outer + increment) is None:
            return False
        self.outer += increment
        self.mark += 0.0 if counted else increment
        self.mass += float(increment.trace())
        self.refactorise()
        return True

    def rebuild(self, phi: Tensor, mass: Tensor) -> None:
        """A ← λI + Σφφᵀ over the rows phi [n, d]; the next increment counts from here."""
        self.reset()
        if not self.add(symmetric(phi.T @ phi), counted=True):
            self.extend(phi, mass)
        self.mark.copy_(self.outer)


def symmetric(matrix: Tensor) -> Tensor:
    """The same matrix, symmetric to the bit."""
    return matrix.triu() + matrix.triu(1).T
