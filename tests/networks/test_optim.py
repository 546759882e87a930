"""Our Adam is torch's Adam."""

from __future__ import annotations

import pytest
import torch

from critex.networks import Adam, minimise, optim, polyak_


def nets() -> tuple[torch.nn.Linear, torch.nn.Linear]:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    second.load_state_dict(first.state_dict())
    return first, second


def loss(net: torch.nn.Module, seed: int) -> torch.Tensor:
    return net(torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))).square().mean()


@pytest.fixture(params=[True, False], ids=["batched", "public"])
def batched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With torch's batched private operations, and without them."""
    assert optim.BATCHED  # this torch has them
    if not request.param:
        monkeypatch.setattr(optim, "BATCHED", False)
        monkeypatch.setattr(optim, "torch", Public())
    return request.param


class Public:
    """torch without its underscored operations."""

    def __getattr__(self, name: str) -> object:
        assert not name.startswith("_f"), name
        return getattr(torch, name)


def test_the_same_steps_as_torch(batched: bool) -> None:
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


@pytest.mark.parametrize("max_norm", [0.01, 1e6])
def test_each_group_is_clipped_on_its_own_as_torch_does(max_norm: float, batched: bool) -> None:
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
                minimise(value, optimizer, max_norm)
            else:
                optimizer.zero_grad()
                value.backward()
                for group in optimizer.param_groups:
                    torch.nn.utils.clip_grad_norm_(group["params"], max_norm)
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


def test_frozen_and_unused_parameters_stay(batched: bool) -> None:
    """w² + 0·…: only w moves; once v is unfrozen and used it moves as with torch's own counts."""
    w, v, unused = (torch.nn.Parameter(torch.tensor(x)) for x in (2.0, 1.0, 4.0))
    v.requires_grad_(False)
    optimizer = Adam([w, v, unused], lr=0.1)
    for _ in range(2):
        minimise(w**2 + v**2, optimizer, max_grad_norm=10.0)
    assert w.item() < 2.0 and (v.item(), unused.item()) == (1.0, 4.0)
    v.requires_grad_(True)
    minimise(w**2 + v**2, optimizer)
    assert v.item() == pytest.approx(0.9)  # Adam's first step is one step size long
    with pytest.raises(ValueError, match="2 gradients for 3 parameters"):
        optimizer.descend([torch.ones(()), torch.ones(())])


def test_all_together_after_steps_apart() -> None:
    """Counts that have become equal again may be shared again, with torch's numbers."""
    ours, theirs = nets()
    optimizers = Adam(ours.parameters(), lr=0.1), torch.optim.Adam(theirs.parameters(), lr=0.1)
    for i in range(6):
        for net, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            loss(net, i).backward()
            if i % 2:
                net.bias.grad = None
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_target_update(batched: bool) -> None:
    targets, sources = [torch.zeros(2), torch.ones(3)], [torch.ones(2), torch.full((3,), 3.0)]
    polyak_(targets, sources, 0.25)
    assert [t.tolist() for t in targets] == [[0.25] * 2, [1.5] * 3]
