"""Multi-layer perceptrons, and the options that shape them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import nn

from critex.errors import require_widths
from critex.ranges import Count, Options

Activation = Literal["relu", "tanh", "gelu", "elu", "silu"]
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
}


def mlp(
    sizes: Sequence[int],
    activation: Activation = "relu",
    layer_norm: bool = False,
    linear: Callable[[int, int], nn.Linear] = nn.Linear,
) -> nn.Sequential:
    """Hidden layers sizes[0] → … → sizes[-1], [..., sizes[0]] → [..., sizes[-1]]; the head is left to the caller.

    Each layer is linear, optional LayerNorm, activation. `linear(inputs, outputs)` makes the linear layers.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers.append(linear(inputs, outputs))
        if layer_norm:
            layers.append(nn.LayerNorm(outputs))
        layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)


@dataclass(kw_only=True)
class NetworkConfig(Options):
    """The shape of an algorithm's networks."""

    hidden: tuple[Count, ...] = (256, 256)
    """Widths of the hidden layers; the critic's last one is φ."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    layer_norm: bool = False
    """LayerNorm in every hidden layer, before its activation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_widths(hidden=self.hidden)


@dataclass(kw_only=True)
class ActorCriticConfig(NetworkConfig):
    """The shapes of an actor and a critic."""

    actor_hidden: tuple[Count, ...] | None = None
    """Widths of the actor's hidden layers (none: those of `hidden`)."""
    critic_hidden: tuple[Count, ...] | None = None
    """Widths of the critic's hidden layers, the last of which is φ (none: those of `hidden`)."""

    @property
    def actor_widths(self) -> tuple[int, ...]:
        """Widths of the actor's hidden layers."""
        return self.hidden if self.actor_hidden is None else self.actor_hidden

    @property
    def critic_widths(self) -> tuple[int, ...]:
        """Widths of the critic's hidden layers."""
        return self.hidden if self.critic_hidden is None else self.critic_hidden

    def __post_init__(self) -> None:
        super().__post_init__()
        require_widths(actor_hidden=self.actor_widths, critic_hidden=self.critic_widths)
