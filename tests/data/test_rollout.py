import pytest
import torch

from critex.data import Rollout, Transition


def step(t: int, n: int = 3) -> Transition:
    obs = torch.full((n, 2), float(t))
    false = torch.zeros(n, dtype=torch.bool)
    return Transition(
        obs={"x": obs}, action=torch.arange(n), reward=torch.full((n,), float(t)), next_obs={"x": obs + 1},
        terminated=false, truncated=false, episode_start=torch.full((n,), t == 0),
    )  # fmt: skip


def test_stacks_time_first_and_starts_over() -> None:
    rollout = Rollout()
    for t in range(4):
        rollout.add(step(t), value=torch.full((3,), 10.0 * t))
    batch, extras = rollout.stack()
    assert batch.obs["x"].shape == (4, 3, 2) and batch.action.shape == (4, 3)
    assert (
        batch.reward[:, 0].tolist() == [0, 1, 2, 3]
        and batch.episode_start[:, 1].tolist() == [True] + [False] * 3
    )
    assert torch.equal(batch.next_obs["x"][:-1], batch.obs["x"][1:])
    assert extras["value"][:, 2].tolist() == [0, 10, 20, 30]
    assert len(rollout) == 0
    rollout.add(step(7))
    assert rollout.stack()[0].reward.tolist() == [[7.0] * 3]


def test_a_bonus_set_after_adding_is_not_lost() -> None:
    rollout, transition = Rollout(), step(0)
    rollout.add(transition)
    transition.bonus = torch.ones(3)
    assert rollout.stack()[0].bonus.tolist() == [[1.0] * 3]


def test_mistakes_are_named() -> None:
    rollout = Rollout()
    with pytest.raises(ValueError, match="empty"):
        rollout.stack()
    rollout.add(step(0), value=torch.zeros(3))
    with pytest.raises(ValueError, match="value"):
        rollout.add(step(1))
