"""RND: the formula by hand, what training does to it, who learns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from critex.errors import UserError
from critex.explorers import RND, RNDConfig
from critex.explorers.rnd import Novelty
from tests.explorers.rollouts import episode, flat, place, rollout


class Zero(nn.Module):
    """x → 0."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@pytest.mark.parametrize("found", [torch.zeros(2, 3), 1.0])
def test_a_raw_bonus_of_another_shape_is_one_line(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RND, "raw", lambda self, steps: found)
    explorer = RND(RNDConfig(), place())
    with pytest.raises(UserError, match=r"RND.raw must return a tensor \[20, \d\], as the reward; got"):
        explorer.bonus_rollout(rollout(20))


def test_closed_form() -> None:
    """p(s') = s', t = 0: the length of s', not its square."""
    explorer = RND(RNDConfig(), place(num_envs=1))
    explorer.novelty = Novelty(nn.Identity(), Zero())
    steps = episode([[9.0, 9.0, 9.0, 9.0], [3.0, 4.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert explorer.bonus_rollout(steps).flatten().tolist() == [5.0, 2.0]
    assert explorer.loss(flat(steps)).item() == 3.5
    assert explorer.measure(steps.obs, steps.action, steps.next_obs)[0].flatten().tolist() == [5.0, 2.0]


def test_target_and_predictor_differ_and_only_the_predictor_learns() -> None:
    explorer = RND(RNDConfig(width=8), place())
    size = (4 * 8 + 8) + (8 * 8 + 8) + (8 * 8 + 8)
    assert explorer.card()["parameters_added"] == 2 * size
    assert sum(p.numel() for p in explorer.learned()) == size
    assert {id(p) for p in explorer.learned()} == {id(p) for p in explorer.novelty.predictor.parameters()}
    assert (explorer.bonus_rollout(rollout(3)) > 0).all()


def test_without_the_linear_layer_both_end_in_the_encoder() -> None:
    explorer = RND(RNDConfig(width=8, linear=False), place())
    assert explorer.card()["parameters_added"] == 2 * ((4 * 8 + 8) + (8 * 8 + 8))
    assert (explorer.novelty.predictor(rollout(3).obs) >= 0).all()


@pytest.mark.parametrize("space", ["vector", "image", "dict"])
def test_falls_where_it_was_trained_and_stays_high_on_the_new(space: str) -> None:
    torch.manual_seed(0)
    explorer = RND(RNDConfig(width=32), place(space))
    steps = flat(rollout(10, space))
    seen, new = (steps.map(lambda x, rows=rows: x[rows]) for rows in (slice(0, 2), slice(2, 20)))
    target = [p.clone() for p in explorer.novelty.target.parameters()]
    before = explorer.raw(seen).mean().item()
    optimizer = torch.optim.Adam(explorer.learned(), lr=3e-3)
    for _ in range(100):
        optimizer.zero_grad()
        explorer.loss(seen).backward()
        optimizer.step()
    known = explorer.raw(seen).mean().item()
    assert known < 0.3 * before
    assert explorer.raw(new).max().item() > 2 * known
    assert all(torch.equal(a, b) for a, b in zip(target, explorer.novelty.target.parameters(), strict=True))
