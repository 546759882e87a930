"""Returns and advantages: GAE for a rollout [T, N], n-step returns for replayed transitions."""

from __future__ import annotations

from operator import itemgetter

import torch
from torch import Tensor

from critex.data.transition import Batch
from critex.data.tree import Tree, tree_map


def gae(
    reward: Tensor,
    value: Tensor,
    last_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    lam: float,
    final_value: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation: advantages [T, N] and returns Â + V [T, N].

        δ_t = r_t + γ·V'_t − V(s_t),        Â_t = δ_t + γλ·(1 − ended_t)·Â_{t+1}

    V'_t, the bootstrap value, is V(s_{t+1}) inside an episode (`last_value` [N] after the last step) and 0 where
    the episode terminated. Where it was truncated, V'_t is `final_value` [T, N] = V(next_obs), the value of the
    true final observation (other entries are ignored); with None a truncation counts as a termination.
    """
    ended = terminated | truncated
    following = torch.cat([value[1:], last_value[None]]).masked_fill(ended, 0.0)
    if final_value is not None:
        following = torch.where(truncated & ~terminated, final_value, following)
    delta = (reward + gamma * following - value).numpy(force=True)
    decay = ((~ended).to(reward.dtype) * (gamma * lam)).numpy(force=True)
    # T small sequential steps: numpy has the least overhead, whatever the device of the tensors
    advantage = delta.copy()
    for t in range(len(advantage) - 2, -1, -1):
        advantage[t] += decay[t] * advantage[t + 1]
    advantages = torch.from_numpy(advantage).to(reward.device)
    return advantages, advantages + value


def n_step_return(batch: Batch, reward: Tensor, gamma: float) -> tuple[Batch, Tensor, Tree, Tensor]:
    """(transitions [B], R [B], s_{t+m}, γᵐ(1 − terminated) [B]) of a target y = R + γᵐ(1 − terminated)·V(s_{t+m}).

    If `batch` holds single transitions [B], m = 1 and R = r. If it holds n consecutive transitions per entry, [n, B],

        R = Σ_{k<m} γᵏ r_k

    where m ≤ n stops at the end of the episode: for a truncated episode, s_{t+m} is the true final observation.
    `reward` has the shape of `batch.reward`; it may contain the bonus of every step. The transitions returned are the
    first ones, (s_t, a_t, s_{t+1}).
    """
    if reward.ndim == 1:
        return batch, reward, batch.next_obs, gamma * ~batch.terminated
    alive = torch.ones_like(batch.terminated)  # [n, B]: still in the episode of the first step
    alive[1:] = (~batch.ended[:-1]).cumprod(0).bool()
    steps = torch.arange(len(reward), device=reward.device)
    total = (gamma**steps).to(reward.dtype) @ reward.masked_fill(~alive, 0.0)
    length = alive.sum(0)  # m, [B]
    row = torch.arange(reward.shape[1], device=reward.device)
    next_obs = tree_map(lambda x: x[length - 1, row], batch.next_obs)
    discount = (gamma**length).to(reward.dtype) * ~batch.terminated[length - 1, row]
    return batch.map(itemgetter(0)), total, next_obs, discount
