"""φ of the critic in an RLModule: the input of the last linear layer of its value or Q head."""

from __future__ import annotations

import threading
from typing import Any

from ray.rllib.core.columns import Columns
from torch import Tensor, nn

from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.errors import UserError
from critex.plugins._common import scaled_actions


class CriticTrunk(nn.Module):
    """φ of Q(s,a) in SAC, of Q(s,·) or its advantages in DQN, of V(s) in PPO, APPO and IMPALA.

    IMPALA's Learner trains in its own thread while another thread computes bonuses. So there is one permanent hook, and
    each thread finds its own φ.
    """

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module
        self.takes_action = hasattr(module, "qf")
        head = next((getattr(module, name) for name in ("qf", "af", "vf") if hasattr(module, name)), None)
        layers = [] if head is None else [layer for layer in head.modules() if isinstance(layer, nn.Linear)]
        if not layers:
            raise UserError(
                f"critex.rllib finds no critic in {type(module).__name__}: it has no qf, af or vf"
            )
        self.layer = layers[-1]
        self.dim = self.layer.in_features
        self._forward = (
            module.compute_values if head is getattr(module, "vf", None) else module.compute_q_values
        )
        self._inputs: dict[int, Tensor] = {}  # per thread
        self.layer.register_forward_pre_hook(self._keep)

    def embedding(self, normalize_actions: bool) -> Embedding:
        """φ in the form that explorers take; `normalize_actions`: RLlib's option, with which it stores scaled actions."""
        actions = self.module.action_space
        if normalize_actions:
            actions = scaled_actions(actions)
        return Embedding.of(self.phi, self.dim, actions, takes_action=self.takes_action)

    def _keep(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._inputs[threading.get_ident()] = inputs[0]

    def phi(self, obs: Tree, *action: Tensor) -> Tensor:
        """φ(s) or φ(s,a), [..., d]; RLlib's own networks take [B, …]."""
        space = self.module.observation_space
        leaf: Any = obs
        while isinstance(leaf, dict):
            key = next(iter(leaf))
            leaf, space = leaf[key], space[key]
        shape = leaf.shape[: leaf.ndim - len(space.shape)]
        n = shape.numel()
        batch: dict[str, Any] = {Columns.OBS: tree_map(lambda x: x.reshape(n, *x.shape[len(shape) :]), obs)}
        if self.takes_action:
            batch[Columns.ACTIONS] = action[0].reshape(n, -1)
        self._forward(batch)
        return self._inputs.pop(threading.get_ident()).reshape(*shape, self.dim)
