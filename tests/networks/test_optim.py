"""Our Adam is torch's Adam."""

from __future__ import annotations

import pytest
import torch

from critex.networks import Adam, minimise, plus


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
            value = loss(net, i) + (more.square().sum() if i >= 3 else 0.0)
            if isinstance(optimizer, Adam) and i % 2:
                minimise(value, optimizer)
            else:
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
        for p, q in zip([*ours.parameters(), extra[0]], [*theirs.parameters(), extra[1]], strict=True):
            torch.testing.assert_close(p, q)
    assert optimizers[0].state_dict()["state"].keys() == optimizers[1].state_dict()["state"].keys()


@pytest.mark.parametrize("longest", [0.01, 1e6])
def test_each_group_is_cut_on_its_own_as_torch_does(longest: float) -> None:
    ours, theirs = nets()
    extra = [torch.nn.Parameter(torch.full((2,), 5.0)) for _ in range(2)]
    optimizers = (
        Adam(ours.parameters(), lr=0.1, eps=1e-2),
        torch.optim.Adam(theirs.parameters(), lr=0.1, eps=1e-2),
    )
    for i in range(4):
        for net, optimizer, more in zip((ours, theirs), optimizers, extra, strict=True):
            if i == 1:
                optimizer.add_param_group({"params": [more]})
            value = loss(net, i) + (more.square().sum() if i else 0.0)
            if isinstance(optimizer, Adam):
                minimise(value, optimizer, longest)
            else:
                optimizer.zero_grad()
                value.backward()
                for group in optimizer.param_groups:
                    torch.nn.utils.clip_grad_norm_(group["params"], longest)
                optimizer.step()
    for p, q in zip([*ours.parameters(), extra[0]], [*theirs.parameters(), extra[1]], strict=True):
        torch.testing.assert_close(p, q)


def test_a_transposed_gradient_is_the_gradient() -> None:
    w, v = (torch.zeros(2, 3) for _ in range(2))
    g = torch.arange(6.0).reshape(3, 2).t()
    Adam([w], lr=0.1, eps=1.0).descend([g])
    Adam([v], lr=0.1, eps=1.0).descend([g.contiguous()])
    assert torch.equal(w, v) and not torch.equal(w, torch.zeros(2, 3))


def test_minimise_moves_its_own_parameters_alone() -> None:
    ours, other = nets()
    before = [p.detach().clone() for p in (*ours.parameters(), *other.parameters())]
    minimise(other(ours(torch.ones(1, 3)) @ torch.ones(2, 3)).sum(), Adam(ours.parameters(), lr=0.1))
    after = [*ours.parameters(), *other.parameters()]
    assert [torch.equal(p, q) for p, q in zip(after, before, strict=True)] == [False, False, True, True]
    assert all(p.grad is None for p in other.parameters())


def test_a_known_gradient_plus_one_of_autograd() -> None:
    """L = w² with its gradient given, plus 3wu: ∂/∂w = 2w + 3u, ∂/∂u = 3w, and nothing for v of 5v."""
    w, v, u = (torch.nn.Parameter(torch.tensor(x)) for x in (2.0, 1.0, 4.0))
    optimizer = Adam([w, v], lr=0.1)
    optimizer.add_param_group({"params": [u]})
    given = [2 * w.detach(), torch.tensor(5.0)]
    loss, gradients = plus(w.detach() ** 2, given, 3 * w * u, optimizer)
    assert (loss.item(), [g.item() for g in gradients]) == (28.0, [16.0, 5.0, 6.0])
    loss, gradients = plus(w.detach() ** 2, given, torch.zeros(()), optimizer)
    assert (loss.item(), [g.item() for g in gradients]) == (4.0, [4.0, 5.0])
    with pytest.raises(ValueError, match="2 gradients for 3 parameters"):
        optimizer.descend(gradients)
