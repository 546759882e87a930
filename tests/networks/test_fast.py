"""Gradients written out are autograd's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from critex.networks import mlp, parameter_gradients, relu_layers, trace
from critex.networks.gradient import input_gradient


def network(*sizes: int) -> tuple[nn.Sequential, nn.Linear]:
    torch.manual_seed(0)
    return mlp(sizes[:-1]).double(), nn.Linear(sizes[-2], sizes[-1]).double()


@pytest.mark.parametrize("hidden", [(7,), (7, 5), (6, 7, 5)])
def test_of_parameters(hidden: tuple[int, ...]) -> None:
    body, head = network(4, *hidden, 3)
    x, g = torch.randn(9, 4).double(), torch.randn(9, 3).double()
    out = head(body(x))
    wanted = torch.autograd.grad(out, [*body.parameters(), *head.parameters()], g)
    layers = relu_layers(body, head)
    with torch.no_grad():
        seen = trace(layers, x)
        torch.testing.assert_close(seen[-1], out)
        got = parameter_gradients(layers, seen, g)
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("hidden", [(7,), (7, 5), (6, 7, 5)])
@pytest.mark.parametrize("rows", [None, torch.tensor([8, 0, 3])])
def test_of_some_inputs(hidden: tuple[int, ...], rows: Tensor | None) -> None:
    body, head = network(4, *hidden, 1)
    x = torch.randn(9, 4).double().requires_grad_()
    (wanted,) = torch.autograd.grad(head(body(x)).sum(), x)
    layers = relu_layers(body, head)
    with torch.no_grad():
        got = input_gradient(layers, trace(layers, x), slice(-3, None), rows)
    torch.testing.assert_close(got, (wanted if rows is None else wanted[rows])[:, -3:])
