"""What the methods share that bring networks of their own: an encoder of states, and one pass for a whole rollout."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree
from critex.embedding import Embedding, Form
from critex.errors import require_at_least
from critex.explorers.base import Setting
from critex.explorers.scaling import Scaled, ScalingConfig
from critex.networks import encoder, is_flat, mlp


@dataclass(frozen=True)
class RivalConfig(ScalingConfig):
    """Options of an explorer with networks of its own."""

    width: int = 128
    """Length of its state embedding, and width of its hidden layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, width=1)


class StateEncoder(nn.Module):
    """φ(s) of any observation, [..., width]: images and dicts through their encoder, then ReLU layers; one for
    images and dicts, two for vectors."""

    def __init__(self, setting: Setting, width: int) -> None:
        super().__init__()
        space = setting.observation_space
        if space is None:
            raise ValueError(
                "an explorer with an encoder of its own needs the observation space in its setting"
            )
        self.encode, self.dim = encoder(space, setting.nethack), width
        self.layers = mlp([self.encode.dim, *[width] * (2 if is_flat(space) else 1)])
        self.to(setting.embedding.device)

    def forward(self, obs: Tree) -> Tensor:
        phi: Tensor = self.layers(self.encode(obs))
        return phi

    def embedding(self, setting: Setting, form: Form) -> Embedding:
        """This encoder in the place of the critic: an embedding of transitions to which the agent is unknown."""
        return replace(
            setting.embedding, critic=self.forward, critic_dim=self.dim, takes_action=False, form=form
        )


def frozen(module: nn.Module) -> nn.Module:
    """The module as it is now, for good: random features."""
    return module.requires_grad_(False)


class Rival(Scaled):
    """A bonus whose `raw` takes [N] and [T, N] alike, so that a rollout is one pass of its networks."""

    def raw(self, steps: Transition) -> Tensor:
        """The unscaled bonus of transitions in time order, [N] or [T, N]; advances counts, where it has them."""
        raise AssertionError(f"{type(self).__name__} does not say how it computes a bonus")

    def _bonus(self, step: Transition) -> tuple[Tensor, Tensor]:
        return self._take_in(self.raw(step))

    def _bonus_rollout(self, rollout: Transition, phi: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._take_in(self.raw(rollout))
