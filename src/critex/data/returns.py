"""Advantages and returns of a rollout [T, N]."""

from __future__ import annotations

import torch
from torch import Tensor


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

    V'_t, the value of what followed, is V(s_{t+1}) inside an episode (`last_value` [N] after the last step)
    and 0 where it terminated. Where it was truncated, V'_t is `final_value` [T, N] = V(next_obs), of
    the true final observation (other entries are ignored); with None a truncation counts as a termination.
    """
    ended = terminated | truncated
    following = torch.cat([value[1:], last_value[None]]).masked_fill(ended, 0.0)
    if final_value is not None:
        following = torch.where(truncated & ~terminated, final_value, following)
    delta = (reward + gamma * following - value).numpy(force=True)
    decay = ((~ended).to(reward.dtype) * (gamma * lam)).numpy(force=True)
    # T small steps, one after the other: numpy's are the cheapest, on whatever device the rest lives
    advantage = delta.copy()
    for t in range(len(advantage) - 2, -1, -1):
        advantage[t] += decay[t] * advantage[t + 1]
    advantages = torch.from_numpy(advantage).to(reward.device)
    return advantages, advantages + value
