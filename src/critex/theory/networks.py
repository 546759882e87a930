"""Small ReLU networks, one for every seed and step, in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from critex.theory.planning import Streams


class Network:
    """f(x) = W_Lᵀ relu(… relu(W_1ᵀx)) for each seed and step; `weights` are [S, H, in, out], without biases.

    Entries of a hidden layer are N(0, 2/out) and those of the last N(0, 1/out): ‖f(x)‖ ≈ ‖x‖ at initialisation.
    """

    def __init__(self, streams: Streams, copies: int, sizes: tuple[int, ...]) -> None:
        self.weights: list[Tensor] = []
        for layer, (before, after) in enumerate(pairwise(sizes)):
            gain = 2.0 if layer < len(sizes) - 2 else 1.0
            weight = np.sqrt(gain / after) * streams.normal(copies, before, after)
            self.weights.append(torch.from_numpy(weight).requires_grad_())

    def __call__(self, x: Tensor) -> Tensor:
        """[..., rows, in] → [S, H, rows, out]."""
        *hidden, last = self.weights
        for weight in hidden:
            x = (x @ weight).relu()
        return x @ last


def descend(loss: Tensor, weights: Sequence[Tensor], rate: float) -> None:
    """W ← W − η∇L in place, for a loss summed over seeds and steps."""
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight -= rate * gradient


def in_unit_ball(phi: Tensor) -> Tensor:
    """φ / max(1, ‖φ‖), [..., d]: the theorem requires ‖φ‖ ≤ 1."""
    out: Tensor = phi / phi.norm(dim=-1, keepdim=True).clamp_min(1.0)
    return out
