"""NovelD: the rise of novelty, once an episode; random features stay random."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from critex.explorers import NovelD, NovelDConfig
from critex.explorers.rnd import Novelty
from tests.explorers.rollouts import D, episode, flat, place, rollout
from tests.explorers.test_rnd import Zero

HOME, P, Q = [0.0, 0.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(("c", "drop"), [(0.1, 1 - 0.1 * 5), (0.5, 0.0)])
def test_closed_form(c: float, drop: float) -> None:
    """n(x) = ‖x‖: 0 → p pays 5, p → q pays 1 − 5c or nothing, back to p and 0 pays nothing: both were seen."""
    explorer = NovelD(NovelDConfig(c=c, key="obs", scaling="none"), place(num_envs=1))
    explorer.trunk, explorer.novelty = nn.Identity(), Novelty(nn.Identity(), Zero())
    steps = episode([HOME, P, Q, P, HOME])
    for _ in range(2):  # once an episode, not once for good
        assert explorer.bonus_rollout(steps).flatten().tolist() == pytest.approx([5.0, drop, 0.0, 0.0])
    assert explorer.loss(flat(steps)).item() == pytest.approx((5 + 1 + 5 + 0) / 4)


def test_layers() -> None:
    """t: w → h → h → h → h, p: w → w → w → h → h → h, and only p learns."""
    w, h = 8, 6
    explorer = NovelD(NovelDConfig(width=w, head=h), place())
    trunk = (D * w + w) + (w * w + w)
    target = (w * h + h) + 3 * (h * h + h)
    predictor = 2 * (w * w + w) + (w * h + h) + 2 * (h * h + h)
    assert explorer.card()["parameters_added"] == trunk + target + predictor
    assert sum(p.numel() for p in explorer.learned()) == predictor


def test_training_lowers_the_novelty_of_what_was_seen() -> None:
    torch.manual_seed(0)
    explorer = NovelD(NovelDConfig(width=32), place("image"))
    steps = flat(rollout(10, "image"))
    seen, new = (steps.map(lambda x, rows=rows: x[rows]) for rows in (slice(0, 2), slice(2, 20)))
    before = explorer.loss(seen).item()
    optimizer = torch.optim.Adam(explorer.learned(), lr=3e-3)
    for _ in range(100):
        optimizer.zero_grad()
        explorer.loss(seen).backward()
        optimizer.step()
    with torch.no_grad():
        after = explorer.loss(seen).item()
        assert after < 0.3 * before
        assert explorer.novelty(explorer.trunk(new.next_obs)).max().item() > 2 * after


def test_without_the_mask_every_rise_is_paid() -> None:
    explorer = NovelD(NovelDConfig(key="obs", scaling="none", first_visit_only=False), place(num_envs=1))
    explorer.trunk, explorer.novelty = nn.Identity(), Novelty(nn.Identity(), Zero())
    bonus = explorer.bonus_rollout(episode([HOME, P, Q, P, HOME])).flatten().tolist()
    assert bonus == pytest.approx([5.0, 0.5, 4.9, 0.0])
