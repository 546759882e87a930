"""The state encoder of the explorers that have their own networks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from critex.data.tree import Tree
from critex.embedding import Embedding, Form
from critex.explorers.base import Setting
from critex.explorers.scaling import ScalingConfig
from critex.networks import encoder, is_flat, mlp
from critex.ranges import Count


@dataclass(frozen=True)
class EncoderConfig(ScalingConfig):
    """Options of an explorer with its own networks."""

    width: Count = 128
    """Length of the state embedding, and width of the hidden layers."""


class StateEncoder(nn.Module):
    """φ(s) [..., width] of any observation.

    Images and dicts pass through the encoder of their space and one ReLU layer, vectors through two ReLU layers.
    """

    def __init__(self, setting: Setting, width: int) -> None:
        super().__init__()
        space = setting.observation_space
        if space is None:
            raise ValueError("an explorer with its own encoder needs observation_space in its Setting")
        self.encode, self.dim = encoder(space, setting.nethack), width
        self.layers = mlp([self.encode.dim, *[width] * (2 if is_flat(space) else 1)])
        self.to(setting.embedding.device)

    def forward(self, obs: Tree) -> Tensor:
        phi: Tensor = self.layers(self.encode(obs))
        return phi

    def embedding(self, setting: Setting, form: Form) -> Embedding:
        """An embedding of transitions that uses this encoder in place of the critic."""
        return replace(
            setting.embedding, critic=self.forward, critic_dim=self.dim, takes_action=False, form=form
        )


def frozen(module: nn.Module) -> nn.Module:
    """The module with its parameters frozen: random features."""
    return module.requires_grad_(False)
