"""Stochastic policies and values over a trunk φ(s), as PPO uses them: orthogonal weights, one linear head each."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.networks.encoder import encoder
from critex.networks.mlp import Activation, mlp


def orthogonal(inputs: int, outputs: int, gain: float = math.sqrt(2)) -> nn.Linear:
    """A linear layer with orthogonal weights of this gain and zero bias."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Trunk(nn.Module):
    """φ(s): the encoder of the observation space, then hidden layers."""

    def __init__(
        self,
        space: gym.Space[Any],
        hidden: tuple[int, ...],
        activation: Activation = "tanh",
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.encode = encoder(space)
        self.body = mlp([self.encode.dim, *hidden], activation, layer_norm, orthogonal)
        self.dim = hidden[-1]

    def forward(self, obs: Tree) -> Tensor:
        """φ(s), [..., dim]."""
        phi: Tensor = self.body(self.encode(obs))
        return phi


class Network(nn.Module):
    """θᵀφ(s): a trunk φ, which another network may share, and a linear head θ."""

    def __init__(self, trunk: Trunk, outputs: int, gain: float) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = orthogonal(trunk.dim, outputs, gain)

    def embed(self, obs: Tree) -> Tensor:
        """φ(s), [..., d]."""
        phi: Tensor = self.trunk(obs)
        return phi

    def forward(self, obs: Tree) -> Tensor:
        """θᵀφ(s), [..., outputs]."""
        out: Tensor = self.head(self.embed(obs))
        return out


class Value(Network):
    """V(s) = θᵀφ(s); `forward` gives [..., 1]."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__(trunk, 1, gain=1.0)


class Gaussian(Network):
    """π(·|s) = N(μ(s), diag σ²), unsquashed, with a learned state-independent σ; `forward` gives μ [..., a]."""

    def __init__(self, trunk: Trunk, space: gym.spaces.Box) -> None:
        self.shape, self.dim = space.shape, math.prod(space.shape)
        super().__init__(trunk, self.dim, gain=0.01)
        self.log_std = nn.Parameter(torch.zeros(self.dim))
        self.low, self.high = (torch.from_numpy(bound.ravel()).float() for bound in (space.low, space.high))

    def noise(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Standard normal noise, from which `sample` computes actions [*shape, a]."""
        return torch.randn(*shape, self.dim, generator=generator)

    def sample(self, mean: Tensor, noise: Tensor) -> Tensor:
        """μ + σz."""
        return torch.addcmul(mean, self.log_std.exp(), noise)

    def mode(self, mean: Tensor) -> Tensor:
        """The most likely action."""
        return mean

    def log_prob(self, mean: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) = −½ Σ ((a − μ)/σ)² − Σ log σ − ½ dim·log 2π, [...]."""
        z = (action - mean) * (-self.log_std).exp()
        return -0.5 * z.square().sum(-1) - (self.log_std.sum() + 0.5 * self.dim * math.log(2 * math.pi))

    def entropy(self, mean: Tensor) -> Tensor:
        """Σ log σ + ½ dim·(1 + log 2π)."""
        return self.log_std.sum() + 0.5 * self.dim * (1 + math.log(2 * math.pi))

    def to_env(self, action: Tensor) -> Tensor:
        """The action for the environment: clipped to its range."""
        return action.cpu().clamp(self.low, self.high).view(-1, *self.shape)


class Categorical(Network):
    """π(a|s) = softmax(logits)_a; actions are integers [...], `forward` gives the logits [..., A]."""

    def __init__(self, trunk: Trunk, space: gym.spaces.Discrete) -> None:
        self.dim = int(space.n)
        super().__init__(trunk, self.dim, gain=0.01)

    def noise(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Gumbel noise, from which `sample` computes actions [*shape]."""
        return -torch.empty(*shape, self.dim).exponential_(generator=generator).log()

    def sample(self, logits: Tensor, noise: Tensor) -> Tensor:
        """argmax of logits + Gumbel noise, a sample of the softmax."""
        return (logits + noise).argmax(-1)

    def mode(self, logits: Tensor) -> Tensor:
        """The most likely action."""
        return logits.argmax(-1)

    def log_prob(self, logits: Tensor, action: Tensor) -> Tensor:
        """log π(a|s), [...]."""
        return logits.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, logits: Tensor) -> Tensor:
        """Mean over states of −Σ_a π log π."""
        log_p = logits.log_softmax(-1)
        return -(log_p.exp() * log_p).sum(-1).mean()

    def to_env(self, action: Tensor) -> Tensor:
        """The action for the environment, unchanged."""
        return action
