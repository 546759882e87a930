"""Where the bonus goes: into the reward (Algorithm 2 of the paper) or into the value (its Equation 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from critex.data import Batch
from critex.data.tree import Tree, tree_leaves
from critex.explorers._alpha import AlphaOption
from critex.explorers.base import Explorer
from critex.ranges import Options, Positive


@dataclass(kw_only=True)
class ExplorationConfig(Options):
    """The exploration part of every algorithm's options."""

    explorer: str = "none"
    """Exploration method: none, cae, cae_plus, e3b, rnd, icm, ride, noveld, counts, acb or bdqn, or two of them, as in
    e3b*noveld or rnd+counts. Its own options are --bonus.*"""
    preset: str | None = None
    """Settings to start from: paper (the method as in the paper), official (as in the released code) or official_root
    (that code's option with the square root). Settings of a family (compact, deepsea, minigrid, minihack) apply to
    its ids automatically. Flags override both."""
    bonus: Any = None
    """Options of the explorer (none: its defaults)."""
    alpha: AlphaOption = 0.1
    """α, the exploration coefficient: the weight of the bonus. auto sets it from the running scales of reward and bonus;
    auto_decay also decays it to 0 over the run."""
    bonus_in: Literal["reward", "value"] = "reward"
    """Where the bonus goes: r̃ = r + αβ, or Q + αβ both when acting and in the bootstrapped target."""
    scale_value_bonus: bool = False
    """With bonus_in=value: use the scaled bonus instead of the raw one."""
    recompute: bool = False
    """With bonus_in=reward: recompute the bonus of a replayed transition instead of using the stored one."""
    reward_clip: Positive | None = None
    """Clip r̃ to ± this value."""


def batch_bonus(batch: Batch, explorer: Explorer, cfg: ExplorationConfig) -> Tensor:
    """β of every transition, in the shape of the reward: the stored one, or with `recompute` the current one.

    With scaling=batch it is scaled here, in the learner. With bonus_in=value it is 0.
    """
    if cfg.bonus_in == "value":
        return torch.zeros_like(batch.reward)
    bonus = batch.bonus
    if cfg.recompute:
        bonus = explorer.measure(batch.obs, batch.action, batch.next_obs)[1]
    return explorer.scale(bonus).to(batch.reward)


def clip_reward(reward: Tensor, cfg: ExplorationConfig) -> Tensor:
    """r̃ clipped to ±`reward_clip`."""
    return reward if cfg.reward_clip is None else reward.clamp(-cfg.reward_clip, cfg.reward_clip)


def value_bonus(obs: Tree, explorer: Explorer, cfg: ExplorationConfig, *, target: bool = False) -> Tensor:
    """β(s, ·) of every action, [..., A]; 0 with bonus_in=reward, and in targets if the explorer leaves them unchanged."""
    if cfg.bonus_in == "reward" or (target and not explorer.in_targets):
        return torch.zeros(())
    raw, scaled = explorer.measure_actions(obs)
    bonus = scaled if cfg.scale_value_bonus else raw
    return bonus.to(tree_leaves(obs)[0].device, torch.float32)
