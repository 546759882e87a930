"""`last_hidden`: φ of other people's critics."""

from __future__ import annotations

import copy
import threading
from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import Tensor, nn

import critex
from critex.embedding import Embedding

DISCRETE = gym.spaces.Discrete(3)


def critic() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))


class Twin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q1, self.q2 = critic(), critic()

    def forward(self, x: Tensor) -> Tensor:
        return torch.minimum(self.q1(x), self.q2(x))


class Outputs(nn.Module):
    """A body, two heads and a weight, and any outputs of them."""

    def __init__(self, outputs: Any) -> None:
        super().__init__()
        self.outputs = outputs
        self.weight = nn.Parameter(torch.randn(8, 2))
        self.body, self.q, self.aux = nn.Linear(3, 8), nn.Linear(8, 2), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Any:
        return self.outputs(self, self.body(x).relu())


class TestLastHidden:
    def test_is_the_input_of_the_last_linear_layer(self) -> None:
        net, x = critic(), torch.randn(5, 3)
        embed = critex.last_hidden(net)
        assert embed.dim == 8
        torch.testing.assert_close(embed(x), net[:2](x))
        assert not net[2]._forward_pre_hooks  # nothing is left behind

    def test_keeps_the_gradient(self) -> None:
        net = critic()
        critex.last_hidden(net)(torch.randn(5, 3)).sum().backward()
        assert net[0].weight.grad is not None

    def test_twin_critics_ask_for_the_layer(self) -> None:
        net, x = Twin(), torch.randn(5, 3)
        with pytest.raises(ValueError, match=r"q1\.2, q2\.2.*layer="):
            critex.last_hidden(net)(x)
        torch.testing.assert_close(critex.last_hidden(net, layer="q2.2")(x), net.q2[:2](x))
        torch.testing.assert_close(critex.last_hidden(net, layer=net.q1[2])(x), net.q1[:2](x))

    def test_heads_beside_each_other_ask_for_the_layer(self) -> None:
        class Heads(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.one, self.two = nn.Linear(3, 8), nn.Linear(8, 4), nn.Linear(8, 4)

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
                phi = self.body(x)
                return self.one(phi), self.two(phi)

        with pytest.raises(ValueError, match=r"one, two.*layer="):
            critex.last_hidden(Heads())(torch.randn(1, 3))

    def test_layers_of_one_shape_in_a_row_are_no_rivals(self) -> None:
        deep, x = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 8)), torch.randn(2, 3)
        torch.testing.assert_close(critex.last_hidden(deep)(x), deep[:2](x))

    def test_the_order_of_execution_counts_not_that_of_definition(self) -> None:
        class HeadFirst(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head, self.body = nn.Linear(8, 1), nn.Linear(8, 8)

            def forward(self, x: Tensor) -> Tensor:
                return self.head(self.body(x))

        net, x = HeadFirst(), torch.randn(2, 8)
        torch.testing.assert_close(critex.last_hidden(net)(x), net.body(x))
        net.body = nn.Linear(3, 8)  # now the layer defined last would have given a φ of another length
        with pytest.raises(ValueError, match="head was executed last"):
            critex.last_hidden(net)(torch.randn(2, 3))

    def test_an_output_layer_of_another_kind_is_no_guess(self) -> None:
        """With a head of the user's own, φ would silently have been the input of the layer before it."""

        class Noisy(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.randn(2, 8))

            def forward(self, x: Tensor) -> Tensor:
                return x @ self.weight.T

        net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), Noisy())
        with pytest.raises(ValueError, match=r"Noisy 2 runs after 0, the last nn\.Linear"):
            critex.last_hidden(net)(torch.randn(1, 3))

    @pytest.mark.parametrize("norm", ["spectral_norm", "weight_norm"])
    def test_a_normed_output_layer(self, norm: str) -> None:
        net, x = critic(), torch.randn(5, 3)
        getattr(nn.utils.parametrizations, norm)(net[2])
        torch.testing.assert_close(critex.last_hidden(net)(x), net[:2](x))
        alone = getattr(nn.utils.parametrizations, norm)(nn.Linear(3, 1))
        assert critex.last_hidden(alone)(x) is x

    @pytest.mark.parametrize(
        ("outputs", "message"),
        [
            (lambda net, h: (net.q(h), net.aux(h)), r"q, aux.*layer="),  # widths 2 and 5
            (lambda net, h: net.q(h) + net.aux(h).mean(-1, keepdim=True), r"q, aux.*layer="),  # dueling
            (lambda net, h: h @ net.weight, "runs after body, the last nn.Linear"),
            (lambda net, h: net.q(h) * net.weight.mean(), "runs after q, the last nn.Linear"),
            (lambda net, h: torch.distributions.Categorical(logits=net.q(h)), "output is no tensor"),
        ],
    )
    def test_several_ways_to_the_output_are_no_guess(self, outputs: Any, message: str) -> None:
        with pytest.raises(critex.UserError, match=message):
            critex.last_hidden(Outputs(outputs))(torch.randn(4, 3))

    @pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU(inplace=True), nn.GELU()])
    def test_a_trunk_without_its_output_layer_is_no_critic(self, activation: nn.Module) -> None:
        """φ would silently have been the layer below, for a trunk shared with the policy the output of its convolutions."""
        trunk, x = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4), activation), torch.randn(5, 3)
        with pytest.raises(critex.UserError, match=r"follows 2, the last nn\.Linear.*lambda s: trunk\(s\)"):
            critex.last_hidden(trunk)(x)
        torch.testing.assert_close(critex.last_hidden(trunk, layer="2")(x), trunk[:2](x))

    @pytest.mark.parametrize(
        "outputs",
        [
            lambda net, h: {"q": (q := net.q(h)), "bounded": q.tanh()},
            lambda net, h: {"q": net.q(h), "features": h},
            lambda net, h: (net.q(h), (h, h.detach())),
            lambda net, h: (net.q(h), net.aux(h).detach()),
        ],
    )
    def test_hidden_outputs_beside_the_value(self, outputs: Any) -> None:
        net, x = Outputs(outputs), torch.randn(4, 3)
        embed = critex.last_hidden(net)
        with torch.inference_mode():
            torch.testing.assert_close(embed(x), net.body(x).relu())
        frozen = Outputs(outputs).requires_grad_(False)
        torch.testing.assert_close(critex.last_hidden(frozen)(x), frozen.body(x).relu())

    def test_leaves_batch_norms_dropout_and_random_numbers_alone(self) -> None:
        """Also inside a function of the user's own, as docs/own-code.md has it."""
        net = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.utils.spectral_norm(nn.Linear(8, 2))
        )
        before, draws = copy.deepcopy(net.state_dict()), torch.get_rng_state()
        phi = critex.last_hidden(net)
        critex.CAE(lambda s: phi(s), num_actions=2)(torch.randn(4, 3, generator=torch.Generator()), [0] * 4)
        assert net.training and all(part.training for part in net)
        assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
        assert torch.equal(torch.get_rng_state(), draws)

    def test_another_thread_may_use_the_critic(self) -> None:
        """The hook would otherwise record the input of whoever runs the layer last."""
        net, x = critic(), torch.randn(5, 3)
        embed = critex.last_hidden(net)
        expected = embed(x)

        entered: list[bool] = []

        def other(*_: Any) -> None:
            if not entered:
                entered.append(True)
                thread = threading.Thread(target=net, args=(torch.randn(5, 3),))
                thread.start()
                thread.join()

        net[2].register_forward_hook(other)
        torch.testing.assert_close(embed(x), expected)

    def test_a_compiled_critic(self) -> None:
        net = critic()
        compiled = torch.compile(net, backend="eager")
        assert critex.last_hidden(compiled).module is net
        assert critex.CAE(compiled, num_actions=2)._form == "state_and_action"

    def test_a_critic_with_a_compiled_part(self) -> None:
        """Compiled code ignores hooks, and compiling it again for each of them takes seconds."""
        graphs: list[Any] = []

        def backend(graph: Any, _: Any) -> Any:
            graphs.append(graph)
            return graph.forward

        net, x = Twin(), torch.randn(5, 3)
        net.compile(backend=backend)
        net(x)
        before = len(graphs)
        torch.testing.assert_close(critex.last_hidden(net, layer="q1.2")(x), net.q1[:2](x))
        whole = nn.Sequential(torch.compile(net.q1, backend=backend))
        torch.testing.assert_close(critex.last_hidden(whole)(x), net.q1[:2](x))
        assert len(graphs) == before > 0

    def test_the_device_is_the_modules(self) -> None:
        net = critic().to("meta")
        assert Embedding.of(critex.last_hidden(net), 8, DISCRETE, takes_action=False).device.type == "meta"

    def test_keyword_arguments(self) -> None:
        class Named(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = nn.Linear(3, 2)

            def forward(self, *, obs: Tensor) -> Tensor:
                return self.head(input=2 * obs)

        assert critex.last_hidden(Named())(obs=torch.ones(1, 3)).tolist() == [[2, 2, 2]]

    def test_bad_layers(self) -> None:
        with pytest.raises(ValueError, match="no linear layer"):
            critex.last_hidden(nn.ReLU())
        with pytest.raises(ValueError, match="unknown linear layer 'nope'"):
            critex.last_hidden(critic(), layer="nope")
