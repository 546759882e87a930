"""φ in every form."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import critex
from critex.embedding import Embedding

DISCRETE, BOX = gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,))


def double(obs: Tensor) -> Tensor:
    return 2 * obs


def joint(obs: Tensor, action: Tensor) -> Tensor:
    return torch.cat([obs, action], -1)


def test_concatenation_with_a_one_hot_action() -> None:
    phi = Embedding.of(double, 2, DISCRETE, takes_action=False)
    out = phi(torch.tensor([[1.0, 2.0]]), torch.tensor([1]))
    assert out.tolist() == [[2, 4, 0, 1, 0]]
    assert phi.dim() == 5


def test_concatenation_with_a_continuous_action() -> None:
    phi = Embedding.of(double, 2, BOX, takes_action=False)
    assert phi(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, -1.0]])).tolist() == [[2, 4, 0.5, -1]]


def test_next_state() -> None:
    phi = replace(Embedding.of(double, 2, DISCRETE, takes_action=False), form="next_state")
    assert phi(torch.zeros(1, 2), torch.tensor([1]), torch.tensor([[3.0, 4.0]])).tolist() == [[6, 8]]
    with pytest.raises(ValueError, match="next_obs"):
        phi(torch.zeros(1, 2), torch.tensor([1]))


def test_block_is_phi_with_a_memory_for_each_action() -> None:
    phi = replace(Embedding.of(double, 2, DISCRETE, takes_action=False), form="block")
    assert phi(torch.tensor([[1.0, 2.0]]), torch.tensor([2])).tolist() == [[2, 4]]
    assert (phi.dim(), phi.blocks) == (2, 3)


def test_state_action_and_the_default_action() -> None:
    phi = Embedding.of(joint, 4, BOX, takes_action=True)
    obs, action = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, -1.0]])
    assert phi(obs, action).tolist() == [[1, 2, 0.5, -1]]
    assert phi.state(obs, action).tolist() == [[1, 2, 0, 0]]


def test_default_action_has_the_shape_of_actions_whatever_the_observation() -> None:
    """Images and single numbers as observations: ä is as long as an action, not as an image's row."""
    phi = Embedding.of(lambda obs, action: joint(obs.flatten(1), action), 6, BOX, takes_action=True)
    image = torch.arange(8, dtype=torch.uint8).reshape(2, 2, 2)
    assert phi.state(image, torch.ones(2, 2)).tolist() == [[0, 1, 2, 3, 0, 0], [4, 5, 6, 7, 0, 0]]


@pytest.mark.parametrize(("space", "action"), [(gym.spaces.Box(-1, 1, ()), [0.5]), (DISCRETE, [[1]])])
def test_actions_in_other_shapes(space: gym.Space, action: list) -> None:
    """Single numbers [N], and integers [N, 1] as some replay buffers keep them."""
    phi = Embedding.of(double, 1, space, takes_action=False)
    code = [0.5] if action == [0.5] else [0, 1, 0]
    assert phi(torch.ones(1, 1), torch.tensor(action)).tolist() == [[2, *code]]


@pytest.mark.parametrize("form", ["state_and_action", "block"])
@pytest.mark.parametrize("norm", [None, 10.0])
def test_each_action_is_the_embedding_of_each_action(form: str, norm: float | None) -> None:
    phi = replace(Embedding.of(double, 2, DISCRETE, takes_action=False), form=form, norm=norm)
    obs = torch.randn(4, 2)
    every = phi.each_action(obs)
    assert every.shape == (4, 3, phi.dim())
    for a in range(3):
        torch.testing.assert_close(every[:, a], phi(obs, torch.full((4,), a)))
    if norm:
        torch.testing.assert_close(every.norm(dim=-1), torch.full((4, 3), norm))


def test_projection_acts_on_the_critic_alone() -> None:
    phi = Embedding.of(double, 2, DISCRETE, takes_action=False)
    out = phi(torch.tensor([[1.0, 2.0]]), torch.tensor([0]), project=lambda x: x[..., :1])
    assert out.tolist() == [[2, 1, 0, 0]]
    assert phi.dim(1) == 4


def test_rollout_shapes() -> None:
    phi = Embedding.of(double, 2, DISCRETE, takes_action=False)
    assert phi(torch.randn(5, 4, 2), torch.zeros(5, 4, dtype=torch.int64)).shape == (5, 4, 5)


class Moody(nn.Module):
    """A critic with layers that have a training mode."""

    def __init__(self, takes_action: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 + 2 * takes_action, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 1)

    def embed(self, obs: Tensor, *action: Tensor) -> Tensor:
        return self.body(torch.cat([obs, *action], -1))


@pytest.mark.parametrize("takes_action", [False, True])
def test_the_bonus_uses_no_dropout_and_leaves_batch_norms_alone(takes_action: bool) -> None:
    critic = Moody(takes_action)
    phi = Embedding.of(critic.embed, 8, BOX, takes_action=takes_action)
    obs, action = torch.randn(1, 2), torch.randn(1, 2)  # one row: a batch norm in training refuses it
    first, before = phi(obs, action), critic.body[1].running_mean.clone()
    assert torch.equal(phi(obs, action), first) and torch.equal(critic.body[1].running_mean, before)
    assert all(module.training for module in critic.modules())
    critic.eval()
    assert torch.equal(phi(obs, action), first) and not critic.body[2].training


class Asking(nn.Module):
    """A critic whose own `forward` has modes, as have its attention and its spectral norm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = spectral_norm(nn.Linear(2, 8))
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, obs: Tensor) -> Tensor:
        tokens = self.body(obs).unsqueeze(1).repeat(1, 4, 1)
        phi = self.attention(tokens, tokens, tokens)[0].mean(1)
        return self.head(F.dropout(phi, 0.5, self.training))


def test_the_bonus_uses_no_dropout_inside_a_forward() -> None:
    critic = Asking()
    phi = Embedding.of(critex.last_hidden(critic), 8, DISCRETE, takes_action=False)
    obs, before = torch.randn(5, 2), [buffer.clone() for buffer in critic.buffers()]
    first = phi.phi(obs)
    assert torch.equal(phi.phi(obs), first) and all(map(torch.equal, critic.buffers(), before))
    assert all(module.training for module in critic.modules())


def test_a_loop_with_one_environment_and_a_batch_norm() -> None:
    critic = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    explorer = critex.CAE(critic, num_actions=3)
    assert explorer(torch.randn(1, 2), torch.tensor([1])).shape == (1,)
    assert critic.training and critic[1].num_batches_tracked == 0


def test_a_critic_whose_widths_are_not_known_yet() -> None:
    critic = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3))
    explorer = critex.CAE(critic, num_actions=3)
    explorer(torch.randn(2, 5), torch.tensor([1, 2]))
    assert critex.last_hidden(critic).dim == 8
    with pytest.raises(critex.UserError, match="dim=, the length of φ"):
        critex.CAEPlus(nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3)), num_actions=3)


def test_a_phi_of_another_length_is_one_clear_error() -> None:
    """Such as a whole critic, given where its φ is meant."""
    net = critic()
    for form in ("state_and_action", "next_state", "state"):
        embedding = Embedding(net, 8, False, True, 2, form)
        with pytest.raises(critex.UserError, match=r"φ has shape \[5, 1\].* given as 8; critex\.last_hidden"):
            embedding(torch.randn(5, 3), torch.zeros(5), torch.randn(5, 3))


def test_unsupported_action_space() -> None:
    with pytest.raises(critex.UserError, match="not supported"):
        Embedding.of(double, 2, gym.spaces.MultiDiscrete([2, 2]), takes_action=False)


def critic() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
