"""V-trace (Espeholt et al., 2018): off-policy corrected values and advantages of an unroll."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def vtrace(
    log_ratio: Tensor,
    discount: Tensor,
    reward: Tensor,
    value: Tensor,
    last_value: Tensor,
    *,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Value targets v and advantages, both [T, N].

        δ_t = ρ̄_t (r_t + γ_t V_{t+1} − V_t),      v_t = V_t + δ_t + γ_t c_t (v_{t+1} − V_{t+1})
        adv_t = ρ̄_t (r_t + γ_t v_{t+1} − V_t)

    with ρ_t = π(a_t|s_t)/μ(a_t|s_t) = exp(`log_ratio`), ρ̄ = min(ρ, `rho_clip`), c = min(ρ, `c_clip`). `discount` γ_t is 0
    where an episode ended; `last_value` [N] is V of the observation after the last step and serves as v_T.
    """
    ratio = log_ratio.exp()
    rho, c = ratio.clamp(max=rho_clip), ratio.clamp(max=c_clip)
    following = torch.cat([value[1:], last_value[None]])
    correction = rho * (reward + discount * following - value)  # δ; becomes v − V in place
    decay = discount * c
    for t in range(len(correction) - 2, -1, -1):
        correction[t] += decay[t] * correction[t + 1]
    target = value + correction
    following = torch.cat([target[1:], last_value[None]])
    return target, rho * (reward + discount * following - value)
