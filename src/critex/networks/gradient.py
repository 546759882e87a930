"""The gradients of ReLU networks written out: autograd's numbers without its bookkeeping, a fifth of an update.

A network is its `layers`, a weight and a bias each, with a ReLU after every layer but the last. Call these functions
under `torch.no_grad()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

Layers: TypeAlias = Sequence[tuple[Tensor, Tensor]]


def relu_layers(body: nn.Sequential, head: nn.Linear) -> Layers:
    """The layers of a body, linear and ReLU in turn, and of the linear head on it."""
    modules = [*body, head]
    assert all(isinstance(activation, nn.ReLU) for activation in modules[1::2])
    return [(linear.weight, linear.bias) for linear in modules[::2] if isinstance(linear, nn.Linear)]


def trace(layers: Layers, x: Tensor) -> list[Tensor]:
    """x, h₁, …, hₙ, out: what each layer is given, [B, …], and what the last returns, [B, o]."""
    seen = [x]
    for weight, bias in layers[:-1]:
        seen.append(F.linear(seen[-1], weight, bias).relu_())
    return [*seen, F.linear(seen[-1], *layers[-1])]


def parameter_gradients(layers: Layers, seen: list[Tensor], g: Tensor) -> list[Tensor]:
    """∂L/∂W₁, ∂L/∂b₁, … from a trace and g = ∂L/∂out, [B, o]. The trace is used up."""
    gradients: list[Tensor] = []
    for i in reversed(range(len(layers))):
        # gᵀh; where that has few columns, BLAS is faster with hᵀg, which has few rows
        narrow = seen[i].shape[1] < g.shape[1]
        gradients += [g.sum(0), (seen[i].t() @ g).t() if narrow else g.t() @ seen[i]]
        if i:
            g = (g @ layers[i][0]).mul_(seen[i].sign_())  # the slope of a ReLU that returned h ≥ 0 is sign h
    return gradients[::-1]


def input_gradient(layers: Layers, seen: list[Tensor], columns: slice, rows: Tensor | None = None) -> Tensor:
    """∂out/∂x of a network with one number out, for some columns of x and, if given, some rows. The trace is used up."""
    g = layers[-1][0]
    for i in reversed(range(len(layers) - 1)):
        h = seen[i + 1] if rows is None else seen[i + 1].index_select(0, rows)
        g = h.sign_().mul_(g)
        g = g @ layers[i][0] if i else (layers[0][0][:, columns].t() @ g.t()).t()  # few rows, not few columns
    return g
