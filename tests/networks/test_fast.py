"""Written-out gradients are autograd's, and step aside where a network was changed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from critex.algorithms import sac, td3
from critex.networks import Critic, mlp
from critex.networks.fast import (
    input_gradient,
    is_plain,
    known_gradients,
    layers_of,
    min_q,
    parameter_gradients,
    trace,
    with_gradients,
)
from tests.algorithms.continuous import OBS, batch, double_precision, make, parameters


class Net(nn.Module):
    """A body and a head."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = mlp(sizes[:-1]).double(), nn.Linear(sizes[-2], sizes[-1]).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@pytest.mark.parametrize("hidden", [(7,), (7, 5), (6, 7, 5)])
def test_of_parameters(hidden: tuple[int, ...]) -> None:
    net, x, g = Net(4, *hidden, 3), torch.randn(9, 4).double(), torch.randn(9, 3).double()
    out = net(x)
    wanted = torch.autograd.grad(out, list(net.parameters()), g)
    layers = layers_of(net)
    with torch.no_grad():
        seen = trace(layers, x)
        torch.testing.assert_close(seen[-1], out)
        got = parameter_gradients(layers, seen, g)
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("hidden", [(7,), (7, 5), (6, 7, 5)])
@pytest.mark.parametrize("rows", [None, torch.tensor([8, 0, 3])])
def test_of_some_inputs(hidden: tuple[int, ...], rows: Tensor | None) -> None:
    net, x = Net(4, *hidden, 1), torch.randn(9, 4).double().requires_grad_()
    (wanted,) = torch.autograd.grad(net(x).sum(), x)
    layers = layers_of(net)
    with torch.no_grad():
        got = input_gradient(layers, trace(layers, x), slice(-3, None), rows)
    torch.testing.assert_close(got, (wanted if rows is None else wanted[rows])[:, -3:])


@pytest.mark.parametrize(("n", "bias"), [(1, 0.0), (2, 0.0), (3, 0.0), (2, 100.0)])
def test_the_smallest_of_several_critics(n: int, bias: float) -> None:
    """With a bias only the first critic is ever the smallest, else each is somewhere."""
    with double_precision():
        torch.manual_seed(0)
        nets = tuple(Critic(OBS, 2, (16, 8)) for _ in range(n))
        obs, action = 3 * torch.randn(40, 3), torch.randn(40, 2).requires_grad_()
        for i, net in enumerate(nets):
            net.head.weight.data.normal_()
            net.head.bias.data.fill_(i * bias)
        q = torch.stack([net(obs, action) for net in nets])
        assert len(q.argmin(0).unique()) == (1 if bias else n)
        wanted = q.amin(0)
        (slope,) = torch.autograd.grad(wanted.sum(), action)
        torch.testing.assert_close(min_q(nets, obs, action.detach()), (wanted.detach(), slope))


def test_a_loss_with_known_gradients_joins_others() -> None:
    """L = w² with its gradient given: ∂/∂w of 5(L + 3wu) = 5(2w + 3u), ∂/∂u = 15w."""
    w, u = (torch.nn.Parameter(torch.tensor(x)) for x in (2.0, 4.0))
    loss = 5 * (with_gradients(w.detach() ** 2, [2 * w.detach()], [w]) + 3 * w * u)
    assert loss.item() == 140.0
    assert [g.item() for g in torch.autograd.grad(loss, (w, u))] == [80.0, 30.0]


@pytest.mark.parametrize("module", [sac, td3])
@pytest.mark.parametrize("explorer", ["cae", "cae_plus"])
def test_fifty_updates_each_way(module: ModuleType, explorer: str) -> None:
    with double_precision():
        agents = [make(module, explorer=explorer, fast=fast) for fast in (True, False)]
        for agent in agents:
            torch.manual_seed(1)
            for i in range(50):
                b = batch(16, seed=i).map(lambda x: x.double() if x.is_floating_point() else x)
                losses = agent.update(b, i)
            agent.last = losses
        for name in ("actor", "q1", "q2", "target1", "target2"):
            for p, q in zip(*(parameters(getattr(agent, name)) for agent in agents), strict=True):
                torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)
        for name, value in agents[0].last.items():
            torch.testing.assert_close(value, agents[1].last[name], rtol=1e-9, atol=1e-11)


def frozen(agent: Any) -> None:
    agent.q1.head.bias.requires_grad_(False)


def hooked(agent: Any) -> None:
    agent.q1.body[1].register_forward_hook(lambda module, given, out: None)


def normalized(agent: Any) -> None:
    agent.q1.body[1] = nn.Sequential(nn.LayerNorm(16), nn.ReLU())


def other_head(agent: Any) -> None:
    agent.q1.head = nn.Sequential(nn.Linear(8, 1))


def other_class(agent: Any) -> None:
    class Mine(Critic):
        def forward(self, obs: Any, action: Tensor) -> Tensor:
            return 2 * super().forward(obs, action)

    agent.q1.__class__ = Mine


def patched(agent: Any) -> None:
    agent.q1.forward = lambda obs, action: Critic.forward(agent.q1, obs, action) ** 2


@pytest.mark.parametrize("change", [frozen, hooked, normalized, other_head, other_class, patched])
@pytest.mark.parametrize("module", [sac, td3])
def test_a_changed_network_goes_through_autograd(module: ModuleType, change: Any) -> None:
    """With `fast` and without it a changed critic learns the same, to the bit."""
    agents = [make(module, fast=fast) for fast in (True, False)]
    assert is_plain(agents[0].q1, Critic)
    for agent in agents:
        torch.manual_seed(2)
        change(agent)
        assert not is_plain(agent.q1, Critic)
        before = agent.q1.head.bias.clone() if change is frozen else None
        torch.manual_seed(3)
        for i in range(3):
            agent.update(batch(seed=i), i)
        assert before is None or torch.equal(agent.q1.head.bias, before)
    for name in ("actor", "q1", "q2"):
        for p, q in zip(*(parameters(getattr(agent, name)) for agent in agents), strict=True):
            assert torch.equal(p, q)


@pytest.mark.parametrize("fast", [True, False])
def test_forward_hooks_fire(fast: bool) -> None:
    agent, calls = make(sac, fast=fast), []
    for name in ("actor", "q1", "q2", "target1"):
        network = getattr(agent, name)
        for module in (network.body[0], network.head):
            module.register_forward_hook(lambda module, given, out, name=name: calls.append(name))
    agent.update(batch(), 1)
    assert set(calls) == {"actor", "q1", "q2", "target1"}
    calls.clear()
    agent.explorer = make(sac, explorer="cae").explorer
    agent.embedding(batch().obs, batch().action)
    assert calls == ["q1"]


def test_known_gradients_are_what_autograd_returns_or_none() -> None:
    agent = make(sac)
    critics = [*agent.q1.parameters(), *agent.q2.parameters()]
    one = batch()
    loss, _ = agent.critic_loss(one.obs, one.action, torch.zeros(len(one.reward)))
    for total in (loss, loss + torch.ones(()), loss + 0.0):
        known = known_gradients(total, critics)
        assert known is not None
        for ours, theirs in zip(known, torch.autograd.grad(total, critics, retain_graph=True), strict=True):
            assert torch.equal(ours, theirs)
    assert known_gradients(2 * loss, critics) is None
    assert known_gradients(loss + critics[0].sum(), critics) is None
    assert known_gradients(loss, critics[:-1]) is None
    critics[0].register_hook(lambda g: 2 * g)
    assert known_gradients(loss, critics) is None


def test_the_actors_pass_is_shared_only_while_weights_and_observations_stay() -> None:
    """The temperature's pass serves the next actor loss; after any change that loss is computed afresh."""
    with double_precision():
        fast, slow = (make(sac, fast=fast) for fast in (True, False))
        obs = batch(16).obs.double()

        def losses(between: Any) -> list[Tensor]:
            found = []
            for agent in (fast, slow):
                torch.manual_seed(0)
                agent.temperature_loss(obs)
                between(agent)
                found += [agent.actor_loss(obs), agent.actor_loss(obs)]  # the second has no pass to share
            return found

        def change(agent: Any) -> None:
            with torch.no_grad():
                agent.actor.head.bias.add_(0.1)

        for between in (lambda _: None, change):
            a, b, c, d = losses(between)
            torch.testing.assert_close((a, b), (c, d), rtol=1e-10, atol=1e-12)
