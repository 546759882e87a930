"""CAE+ for your own training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor, nn

from critex.data.transition import pairs
from critex.data.tree import tree_leaves
from critex.errors import UserError

from ._loop import Actions, Array, to_tensor, to_tensors
from .cae import CAE


class CAEPlus(CAE):
    """CAE+ in your own training loop: CAE on Uφ, with U trained beside the critic.

        explorer = critex.CAEPlus(critic, alpha=0.2, envs=envs)
        optimizer = torch.optim.Adam([*critic.parameters(), *explorer.parameters()])
        rewards = rewards + explorer(obs, actions, ended=terminated | truncated)
        loss = bellman_loss + explorer.loss(batch_obs, batch_actions, batch_next_obs)

    It takes the arguments of `CAE`. Its networks are built at once, so it needs `envs` (or `num_actions` or `action_dim`),
    and `dim` if `critic` is a function or has an `embed` of its own. `u_dim` is the number of rows of U (default d/4),
    `hidden` the width of the inverse-dynamics network (default 64).
    """

    _method = "cae_plus"

    def __init__(
        self,
        critic: nn.Module | Callable[..., Tensor],
        alpha: float | Literal["auto"] = 1.0,
        **keywords: Any,
    ) -> None:
        super().__init__(critic, alpha, **keywords)
        if self._dim is None or self._actions == Actions():
            raise UserError(
                "CAEPlus makes its networks at once: it needs envs= (or num_actions= or action_dim=), and dim=, the "
                "length of φ, if the critic is a function, has an `embed` of its own or has lazy layers"
            )
        self._build(self._dim, 0)

    def loss(self, obs: Array, actions: Array, next_obs: Array) -> Tensor:
        """L_f = mean of −log p(a | Uφ(s), Uφ(s')) over pairs [B, …] within an episode; add it to the critic's loss."""
        assert self.explorer is not None
        weight = self._reader.weight
        action = to_tensor(actions, weight)
        state, after = to_tensors(obs, weight), to_tensors(next_obs, weight)
        rows = {len(x) if x.ndim else 0 for x in (action, *tree_leaves(state), *tree_leaves(after))}
        if len(rows) > 1 or 0 in rows:
            raise UserError(
                f"loss takes pairs [B, …], obs, actions and next_obs with the same B ≥ 1; got {sorted(rows)} rows"
            )
        action = self._actions.checked(action, 1, self._form)
        return self.explorer.loss(pairs(state, action, after))
