"""What the critics of continuous control are asked for, against autograd."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from critex.networks import Critic, regression, smallest

OBS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def critics(n: int) -> tuple[Critic, ...]:
    torch.manual_seed(0)
    return tuple(Critic(OBS, 2, (16, 8)) for _ in range(n))


def test_regression() -> None:
    nets, obs, action, y = critics(2), torch.randn(20, 3), torch.randn(20, 2), torch.randn(20)
    q = [net(obs, action) for net in nets]
    wanted = F.mse_loss(q[0], y) + F.mse_loss(q[1], y)
    gradients = torch.autograd.grad(wanted, [p for net in nets for p in net.parameters()])
    loss, first, got = regression(nets, obs, action, y)
    torch.testing.assert_close((loss, first), (wanted.detach(), q[0].detach()))
    torch.testing.assert_close(got, list(gradients))


@pytest.mark.parametrize(("n", "bias"), [(1, 0.0), (2, 0.0), (3, 0.0), (2, 100.0)])
def test_smallest(n: int, bias: float) -> None:
    """With a bias only the first critic is ever the smallest, else each is somewhere."""
    nets, obs, action = critics(n), 3 * torch.randn(40, 3), torch.randn(40, 2).requires_grad_()
    for i, net in enumerate(nets):
        net.head.weight.data.normal_()
        net.head.bias.data.fill_(i * bias)
    q = torch.stack([net(obs, action) for net in nets])
    assert len(q.argmin(0).unique()) == (1 if bias else n)
    wanted = q.amin(0)
    (slope,) = torch.autograd.grad(wanted.sum(), action)
    torch.testing.assert_close(smallest(nets, obs, action.detach()), (wanted.detach(), slope))
