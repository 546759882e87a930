"""The data that `critex.audit` needs from a Stable-Baselines3 model."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor

from critex.data.tree import tree_map
from critex.errors import UserError
from critex.plugins.audit import Record

if TYPE_CHECKING:
    from critex.plugins.sb3 import ExplorerCallback


class AuditCallback(BaseCallback):
    """Records the data that `critex.audit` checks; place it after the `ExplorerCallback` it watches.

    watch = critex.sb3.AuditCallback(explorer)
    model.learn(10_000, callback=[explorer, watch])
    print(critex.audit.audit(watch.record(), recorders))
    """

    def __init__(self, explorer: ExplorerCallback) -> None:
        super().__init__()
        self.explorer = explorer
        self._bonus: list[NDArray[np.float64]] = []  # of every collection phase, [T, N] each
        self._alpha: list[float] = []  # of every row of them
        # Of each step, copied and as SB3 has them.
        self._rewards: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._record: Record | None = None
        self._learn: Any = None  # `start_time` of the last `learn`, as in ExplorerCallback

    def _init_callback(self) -> None:
        this = self.model.start_time
        if self.explorer._learn is not this or self._learn is this:
            raise UserError(
                "learn() takes the ExplorerCallback, then the AuditCallback that watches it, each once: "
                "callback=[explorer, watch]"
            )
        self._learn = this

    def _on_rollout_start(self) -> None:
        self._rewards.clear()

    def _on_step(self) -> bool:
        # After this call an on-policy model adds γV of the final observation where an episode was truncated.
        rewards = self.locals["rewards"]
        self._rewards.append((rewards.copy(), rewards))
        return True

    def _on_rollout_end(self) -> None:
        explorer = self.explorer
        if explorer.rollout is None or explorer.bonus is None:
            return
        if not explorer.on_policy:
            self._append(explorer.bonus)
            return
        buffer, rollout = self.locals["rollout_buffer"], explorer.rollout
        added = np.stack([after - before for before, after in self._rewards])
        self._record = Record(
            alpha=explorer.alpha,
            bonus=explorer.bonus,
            stored_reward=buffer.rewards.copy(),
            obs=_arrays(rollout.obs),
            next_obs=_arrays(rollout.next_obs),
            ended=rollout.ended.numpy(force=True),
            returns=buffer.returns.copy(),
            values=buffer.values.copy(),
            last_values=self._last_values(),
            gamma=buffer.gamma,
            gae_lambda=buffer.gae_lambda,
            bootstrapped=np.where(rollout.truncated.numpy(force=True), added, 0.0),
        )

    @torch.no_grad()
    def _last_values(self) -> NDArray[Any]:
        """V(s_T) [N, 1] from the policy: `values` of sb3-contrib's locals is V of the state before."""
        model: Any = self.model
        recurrent: tuple[Any, ...] = ()
        if hasattr(model, "_last_lstm_states"):
            starts = torch.as_tensor(self.locals["dones"], dtype=torch.float32, device=model.device)
            recurrent = (model._last_lstm_states.vf, starts)
        values: Tensor = model.policy.predict_values(
            obs_as_tensor(self.locals["new_obs"], model.device), *recurrent
        )
        return values.numpy(force=True)

    def _append(self, bonus: NDArray[np.float64]) -> None:
        self._bonus.append(bonus)
        self._alpha += [self.explorer.alpha] * len(bonus)

    def _on_training_end(self) -> None:
        # A phase that another callback has stopped gets its bonus at the end of `learn`.
        bonus = self.explorer.bonus
        if not self.explorer.on_policy and bonus is not None and self._bonus and bonus is not self._bonus[-1]:
            self._append(bonus)

    def record(self) -> Record:
        """The last rollout, or everything in the replay buffer, which must not have wrapped around."""
        if self._record is not None:
            return self._record
        buffer = getattr(self.model, "replay_buffer", None)
        if buffer is None or buffer.full or not self._bonus:
            raise UserError(
                "there is nothing to audit: no rollout was finished, or the replay buffer is full"
            )
        rows = slice(0, buffer.pos)
        filled = partial(tree_map, itemgetter(rows))
        slim = buffer.optimize_memory_usage  # then s' is not stored, and not checked
        return Record(
            alpha=np.array(self._alpha)[-buffer.pos :, None],
            bonus=np.concatenate(self._bonus)[-buffer.pos :],
            stored_reward=buffer.rewards[rows].copy(),
            obs=filled(buffer.observations),
            next_obs=None if slim else filled(buffer.next_observations),
            ended=buffer.dones[rows].astype(bool),
        )


def _arrays(tree: Any) -> Any:
    return tree_map(lambda x: x.numpy(force=True), tree)
