"""CAE+: CAE through a small linear map U, which an inverse-dynamics network trains together with the critic.

β from Uφ(s,a);    L_f = −log p(a | Uφ(s), Uφ(s'));    the critic minimises L_B + L_f
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from critex.data import Transition
from critex.data.tree import Tree, tree_map
from critex.embedding import identity
from critex.errors import UserError
from critex.explorers._inverse import InverseConfig, InverseDynamics, following, paired
from critex.explorers.base import Setting
from critex.explorers.elliptical import Elliptical, EllipticalConfig
from critex.networks.policies import orthogonal
from critex.ranges import Count, NonNegative


@dataclass(frozen=True)
class CAEPlusConfig(InverseConfig, EllipticalConfig):
    """Options of CAE+: those of the elliptical bonus, of the inverse dynamics, and of U."""

    u_dim: Count | None = None
    """Rows of U (none: a quarter of the critic's embedding)."""
    hidden: Count = 64
    """Hidden width of the inverse-dynamics network."""
    use_u: bool = True
    """Use U. Without it, bonus and inverse dynamics use φ itself (the paper's ablation)."""
    bias_in_bonus: bool = True
    """Compute the bonus from Uφ + b, as the inverse dynamics does, rather than from Uφ."""
    loss_coef: NonNegative = 1.0
    """Weight of L_f, relative to the Bellman loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.u_dim is not None and not self.use_u:
            raise UserError("use_u=False removes U, so u_dim, the number of its rows, must be none")


class CAEPlusExplorer(Elliptical):
    """The elliptical bonus over Uφ; owns U and the inverse-dynamics network, nothing else."""

    Config = CAEPlusConfig
    config: CAEPlusConfig

    def __init__(self, config: CAEPlusConfig, setting: Setting) -> None:
        d = setting.embedding.critic_dim
        width = (config.u_dim or max(d // 4, 1)) if config.use_u else d
        super().__init__(config, setting, width)
        self.U = orthogonal(d, width).to(self.embedding.weight) if config.use_u else None
        self.inverse = InverseDynamics(width, self.embedding, config.hidden, config).to(self.embedding.weight)

    def _project(self, phi: Tensor) -> Tensor:
        """Uφ for the bonus."""
        if self.U is None:
            return phi
        return F.linear(phi, self.U.weight, self.U.bias if self.config.bias_in_bonus else None)

    def phi(self, obs: Tree, action: Tensor, next_obs: Tree | None, state: Tensor | None = None) -> Tensor:
        return self.embedding(obs, action, next_obs, self._project, state)

    def phi_each_action(self, obs: Tree) -> Tensor:
        return self.embedding.each_action(obs, self._project)

    def prepare(self, rollout: Transition) -> Transition:
        return paired(rollout, self.config)

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        """L_f = mean of −log p(a | Uφ(s), Uφ(s')); its gradient reaches U, f̄ and the critic's trunk."""
        project = self.U or identity
        # An unroll: φ(s') is the next row, unless an episode ended.
        if phi is not None and len(phi) > len(batch):
            here, there = phi[:-1], phi[1:]
            if not self.config.cross_episode_ends and bool(batch.ended.any()):
                final = tree_map(lambda x: x[batch.ended], batch.next_obs)
                there = there.index_put(
                    (batch.ended,), self.embedding.state(final, batch.action[batch.ended])
                )
        else:
            here = self.embedding.state(batch.obs, batch.action) if phi is None else phi
            there = self.embedding.state(following(batch), batch.action)
        loss: Tensor = self.inverse(project(here), project(there), batch.action).mean()
        return self.config.loss_coef * loss
