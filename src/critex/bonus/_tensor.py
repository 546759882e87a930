"""The Gram matrices of all memories in any dtype on any device: the primal form in plain tensor operations.

For float64 on the CPU there is the faster and more exact `ExactForm`; this one is for float32 and accelerators. Float64
rollouts are processed in blocks by Cholesky factorisation, float32 row by row: the factorisation would lose small bonuses.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

BLOCK = 128


class TensorForm(nn.Module):
    """A = λI + Σφφᵀ with A⁻¹ kept by Sherman-Morrison, A⁻¹ ← A⁻¹ − vvᵀ with v = A⁻¹φ/√(1 + φᵀA⁻¹φ)."""

    inverse: Tensor
    outer: Tensor
    mark: Tensor
    mass: Tensor
    counts: Tensor

    def __init__(
        self, dim: int, ridge: float, memories: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.dim, self.ridge, self.memories = dim, ridge, memories
        eye = torch.eye(dim, dtype=dtype, device=device).repeat(memories, 1, 1)
        self.register_buffer("inverse", eye / ridge)  # A⁻¹ [M, d, d]
        self.register_buffer("outer", torch.zeros_like(eye))  # Σφφᵀ [M, d, d]
        self.register_buffer("mark", torch.zeros_like(eye))  # Σφφᵀ at the last increment
        self.register_buffer("mass", eye.new_zeros(memories))  # Σ‖φ‖²
        # Rows since A⁻¹ was exact, clamped bonuses.
        self.register_buffer("counts", torch.zeros(memories, 2, dtype=torch.int64, device=device))
        self._roots: dict[int, Tensor] = {}  # Cholesky factors of A, valid until A changes

    def step(self, i: int, phi: Tensor) -> Tensor:
        """φᵀA⁻¹φ of one row [d], then A ← A + φφᵀ."""
        return self._step(slice(i, i + 1), phi[None])[0]

    def step_all(self, phi: Tensor, mass: Tensor) -> Tensor:
        """`step` of every memory with its own row: [M, d] → [M]."""
        return self._step(slice(None), phi)

    def _step(self, at: slice, phi: Tensor) -> Tensor:
        u = (self.inverse[at] @ phi[:, :, None])[:, :, 0]
        bonus = (u * phi).sum(-1)
        clamped = bonus < 0
        bonus.clamp_(min=0.0)
        v = u / (1.0 + bonus).sqrt()[:, None]
        self.inverse[at] -= v[:, :, None] * v[:, None, :]
        self.outer[at] += phi[:, :, None] * phi[:, None, :]
        self._advance(at, 1, phi.square().sum(-1), clamped.long())
        return bonus

    def quadratic(self, i: int, phi: Tensor) -> Tensor:
        """φᵀA⁻¹φ of every row: [n, d] → [n]. Nothing changes."""
        return ((phi @ self.inverse[i]) * phi).sum(-1).clamp_(min=0.0)

    def extend(self, i: int, phi: Tensor, mass: Tensor) -> Tensor:
        """The same as `step` row after row, but in blocks where possible: [n, d], ‖φ‖² [n] → [n]."""
        if phi.dtype != torch.float64:
            return torch.stack([self.step(i, row) for row in phi]) if len(phi) else mass.clone()
        blocks = zip(phi.split(BLOCK), mass.split(BLOCK), strict=True)
        return torch.cat([self._extend_block(i, rows, m) for rows, m in blocks])

    def _extend_block(self, i: int, phi: Tensor, mass: Tensor) -> Tensor:
        """All sequential bonuses of a block from one factorisation, I + ΦA⁻¹Φᵀ = LLᵀ."""
        u = phi @ self.inverse[i]  # [n, d]
        kernel = u @ phi.T
        lower, failed = torch.linalg.cholesky_ex(
            kernel + torch.eye(len(phi), dtype=phi.dtype, device=phi.device)
        )
        if failed:  # round-off made it indefinite: fall back to single rows, which can be clamped
            return torch.stack([self.step(i, row) for row in phi])
        bonus = kernel.diagonal() - lower.tril(-1).square().sum(-1)
        v = torch.linalg.solve_triangular(lower, u, upper=False)
        self.inverse[i] -= symmetric(v.T @ v)
        self.outer[i] += symmetric(phi.T @ phi)
        self._advance(slice(i, i + 1), len(phi), mass.sum(), (bonus < 0).sum())
        return cast(Tensor, bonus.clamp_(min=0.0))

    def _advance(self, at: slice, n: int, mass: Tensor, clamped: Tensor) -> None:
        self._roots.clear()
        self.mass[at] += mass
        self.counts[at, 0] += n + 8 * self.dim * clamped
        self.counts[at, 1] += clamped
        # O(d³) once per 8d rows costs no more than the rows themselves.
        due = self.counts[:, 0] >= 8 * self.dim
        for i in due.nonzero()[:, 0].tolist():
            self.refactorise(i)

    def _factor(self, outer: Tensor) -> Tensor | None:
        """Cholesky factor of λI + outer, with λ raised to the round-off of a huge outer; None if outer is not a Σφφᵀ."""
        eye = torch.eye(self.dim, dtype=outer.dtype, device=outer.device)
        for ridge in (
            self.ridge,
            self.ridge + 4 * self.dim * torch.finfo(outer.dtype).eps * float(outer.trace()),
        ):
            factor, failed = torch.linalg.cholesky_ex(outer + ridge * eye)
            if not failed:
                return cast(Tensor, factor)
        return None

    def refactorise(self, i: int) -> None:
        """Recompute A⁻¹ from A."""
        self.counts[i, 0] = 0
        self._roots.clear()
        if (factor := self._factor(self.outer[i])) is not None:
            self.inverse[i].copy_(symmetric(torch.cholesky_inverse(factor)))

    def heaviest(self) -> float:
        """The largest Σ‖φ‖² of any memory."""
        return float(self.mass.max())

    def total(self, i: int) -> Tensor:
        """Σφφᵀ [d, d]."""
        return self.outer[i].clone()

    def inverse_matrices(self) -> Tensor:
        """A⁻¹ of every memory, [M, d, d]."""
        return self.inverse.clone()

    def sample(self, i: int, generator: torch.Generator | None) -> Tensor:
        """Δθ = L⁻ᵀz ~ N(0, A⁻¹) with A = LLᵀ; L is cached until A changes."""
        z = torch.randn(self.dim, 1, generator=generator, dtype=self.outer.dtype, device=self.outer.device)
        return cast(Tensor, torch.linalg.solve_triangular(self._root(i).T, z, upper=True)[:, 0])

    def _root(self, i: int) -> Tensor:
        if i not in self._roots:
            factor = self._factor(self.outer[i])
            assert factor is not None  # Σφφᵀ is positive semidefinite
            self._roots[i] = factor
        return self._roots[i]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        errors = args[4]
        for name, buffer in self._buffers.items():
            value = state_dict.get(prefix + name)
            if value is not None and buffer is not None and value.shape != buffer.shape:
                errors.append(
                    f"{prefix}{name} of shape {list(value.shape)} does not fit {list(buffer.shape)}"
                )
        if not errors:
            super()._load_from_state_dict(state_dict, prefix, *args)
            self._roots.clear()

    def log_det(self, i: int) -> float:
        """log det A."""
        return 2.0 * float(self._root(i).diagonal().log().sum())

    def effective_dimension(self, i: int) -> float:
        """tr(A⁻¹(A − λI)) = tr(A⁻¹Σφφᵀ)."""
        return float((self.inverse[i] * self.outer[i]).sum())

    def reset(self, i: int) -> None:
        """A ← λI."""
        self._roots.clear()
        self.inverse[i].zero_().diagonal().fill_(1.0 / self.ridge)
        for buffer in (self.outer[i], self.mark[i], self.mass[i], self.counts[i, :1]):
            buffer.zero_()

    def increment(self, i: int) -> Tensor:
        """Σφφᵀ since the last call, [d, d]."""
        difference = self.outer[i] - self.mark[i]
        self.mark[i].copy_(self.outer[i])
        return difference

    def marked(self, i: int) -> Tensor:
        """The Σφφᵀ that `increment` has returned so far, [d, d]; writable."""
        return self.mark[i]

    def add(self, i: int, increment: Tensor, *, counted: bool) -> bool:
        """A ← A + increment [d, d], unless that is not positive definite (False); `counted` in the next `increment`."""
        if self._factor(self.outer[i] + increment) is None:
            return False
        self.outer[i] += increment
        self.mark[i] += 0.0 if counted else increment
        self.mass[i] += float(increment.trace())
        self.refactorise(i)
        return True

    def rebuild(self, i: int, phi: Tensor, mass: Tensor) -> None:
        """A ← λI + Σφφᵀ over the rows phi [n, d]; the next increment counts from here."""
        self.reset(i)
        if not self.add(i, symmetric(phi.T @ phi), counted=True):
            self.extend(i, phi, mass)
        self.mark[i].copy_(self.outer[i])


def symmetric(matrix: Tensor) -> Tensor:
    """The same matrix, symmetric to the bit."""
    return matrix.triu() + matrix.triu(1).T
