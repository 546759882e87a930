"""Our Adam is torch's Adam."""

from __future__ import annotations

import torch

from critex.networks import Adam, minimise


def nets() -> tuple[torch.nn.Linear, torch.nn.Linear]:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    second.load_state_dict(first.state_dict())
    return first, second


def loss(net: torch.nn.Module, seed: int) -> torch.Tensor:
    return net(torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))).square().mean()


def test_the_same_steps_as_torch() -> None:
    """With a group that joins later, a change of the step size, and a reload in between."""
    ours, theirs = nets()
    extra = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizers = Adam(ours.parameters(), lr=0.1), torch.optim.Adam(theirs.parameters(), lr=0.1)
    for i in range(12):
        for net, optimizer, more in zip((ours, theirs), optimizers, extra, strict=True):
            if i == 3:
                optimizer.add_param_group({"params": [more]})
            if i == 5:
                optimizer.param_groups[0]["lr"] = 0.01
            if i == 8:
                optimizer.load_state_dict(optimizer.state_dict())
            minimise(loss(net, i) + (more.square().sum() if i >= 3 else 0.0), optimizer)
        for p, q in zip([*ours.parameters(), extra[0]], [*theirs.parameters(), extra[1]], strict=True):
            torch.testing.assert_close(p, q)
    assert optimizers[0].state_dict()["state"].keys() == optimizers[1].state_dict()["state"].keys()


def test_minimise_gives_no_gradient_to_others() -> None:
    ours, other = nets()
    minimise(other(ours(torch.ones(1, 3)) @ torch.ones(2, 3)).sum(), Adam(ours.parameters(), lr=0.1))
    assert all(p.grad is None for p in other.parameters())
    assert all(p.grad is not None for p in ours.parameters())
