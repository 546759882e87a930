"""Visits of states: every key, episodes and lifetimes, and what cannot be counted."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch

from critex.envs import Envs
from critex.errors import UserError
from critex.explorers._visit_counts import VisitCounts, hashes
from tests.explorers.rollouts import A, at, episode, place, rollout

X, Y, Z = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]


def test_counts_include_this_visit_and_the_first_state() -> None:
    """x → y → x → x → z: x was seen at the start, so the first return is its second visit."""
    tally = VisitCounts("obs", place(num_envs=1), episodic=True)
    assert tally.visit(episode([X, Y, X, X, Z])).flatten().tolist() == [1, 2, 3, 1]


def test_the_first_state_may_be_left_out() -> None:
    counts = VisitCounts("obs", place(num_envs=1), episodic=True, count_start=False)
    assert counts.visit(episode([X, Y, X, X, Z])).flatten().tolist() == [1, 1, 2, 1]


def test_an_episode_begins_anew_and_a_lifetime_goes_on() -> None:
    twice = [episode([X, Y, X]), episode([X, Y, Y])]
    for episodic, expected in [(True, [[1, 2], [1, 2]]), (False, [[1, 2], [2, 3]])]:
        tally = VisitCounts("obs", place(num_envs=1), episodic=episodic)
        assert [tally.visit(steps).flatten().tolist() for steps in twice] == expected


def test_envs_have_their_own_episodes_and_share_a_lifetime() -> None:
    steps = episode([X, Y, Y]).map(lambda x: x.repeat_interleave(2, 1))
    assert VisitCounts("obs", place(), episodic=True).visit(steps).tolist() == [[1, 1], [2, 2]]
    assert VisitCounts("obs", place(), episodic=False).visit(steps).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="2 rows for 1 envs"):
        VisitCounts("obs", place(num_envs=1), episodic=True).visit(steps)


def test_position_is_that_of_the_next_state() -> None:
    steps = episode([X, Y, Z, X], position=[[0, 1], [0, 0], [0, 1]])
    tally = VisitCounts("position", place(num_envs=1), episodic=True)
    assert tally.visit(steps).flatten().tolist() == [1, 1, 2]
    steps.info["start_position"] = torch.zeros(3, 1, 2, dtype=torch.int64)
    tally = VisitCounts("position", place(num_envs=1), episodic=True)
    assert tally.visit(steps).flatten().tolist() == [1, 2, 2]  # it began in (0, 0)


def test_auto_is_position_where_there_is_one() -> None:
    steps = episode([X, Y, Z], position=[[0], [0]])
    assert VisitCounts("auto", place(num_envs=1), episodic=True).visit(steps).flatten().tolist() == [1, 2]
    steps = replace(steps, info={})
    assert VisitCounts("auto", place(num_envs=1), episodic=True).visit(steps).flatten().tolist() == [1, 1]


def test_image_leaves_the_rest_of_a_dict_out() -> None:
    steps = rollout(2, "dict", n=1)
    assert isinstance(steps.obs, dict) and isinstance(steps.next_obs, dict)
    for obs in (steps.obs, steps.next_obs):
        obs["image"] = torch.ones(2, 1, 5, 5, 2, dtype=torch.uint8)
    steps.obs["compass"], steps.next_obs["compass"] = torch.tensor([[0], [0]]), torch.tensor([[1], [2]])
    steps.episode_start[1] = False
    assert VisitCounts("image", place("dict", num_envs=1), episodic=True).visit(steps).flatten().tolist() == [
        2,
        3,
    ]
    assert VisitCounts("obs", place("dict", num_envs=1), episodic=True).visit(steps).flatten().tolist() == [
        1,
        1,
    ]


def test_states_with_actions() -> None:
    tally = VisitCounts("auto", place(num_envs=1), episodic=False, of="state_action")
    steps = episode([X, X, X, Y, X], action=[0, 1, 0, 0])
    assert tally.visit(steps).flatten().tolist() == [1, 1, 2, 1]
    states = torch.tensor([X, Y, Z])
    assert tally.count(tally.action_keys(states)).tolist() == [[2, 1, 0], [1, 0, 0], [0, 0, 0]]
    keys = tally.keys(states, torch.tensor([1, 0, 2]), None)
    assert tally.count(keys).tolist() == [1, 1, 0]
    assert len(set(tally.action_keys(states).ravel().tolist())) == 3 * A


@pytest.mark.parametrize("space", ["vector", "image", "dict"])
@pytest.mark.parametrize("key", ["position", "image", "obs"])
@pytest.mark.parametrize("episodic", [True, False])
def test_a_rollout_counts_as_its_steps_and_state_is_exact(space: str, key: str, episodic: bool) -> None:
    if key == "image" and space == "vector":
        return
    one, two, three = (VisitCounts(key, place(space), episodic=episodic) for _ in range(3))
    steps = rollout(30, space)
    by_step = torch.stack([one.visit(at(steps, t)) for t in range(30)])
    assert torch.equal(two.visit(steps), by_step) and by_step.max() > 1
    saved = io.BytesIO()
    torch.save(one.state_dict(), saved)
    saved.seek(0)
    three.load_state_dict(torch.load(saved, weights_only=True))
    assert torch.equal(one.visit(steps), three.visit(steps))


def test_hashes_tell_rows_apart_and_zeros_not() -> None:
    assert hashes((torch.tensor([[0.0], [-0.0], [1.0]]), 1)).tolist()[0] == hashes((torch.tensor([0.0]), 1))
    a, b, c = hashes((torch.tensor([[0.0], [-0.0], [1.0]]), 1)).tolist()
    assert a == b != c
    assert hashes((torch.zeros(2, 3, 4), 1)).shape == (2, 3)


@pytest.mark.parametrize("episodic", [False, True])
def test_counts_that_never_grow_are_named(episodic: bool) -> None:
    new, old = (VisitCounts("obs", place(), episodic=episodic) for _ in range(2))
    steps = rollout(3000 // 2)
    old.visit(steps)
    steps.obs, steps.next_obs = torch.rand(2, *steps.reward.shape, 4)
    new.visit(steps)
    assert old.warnings == [] and "no state was visited twice in 3,000 steps" in new.warnings[0]
    new.load_state_dict(old.state_dict())
    new.visit(steps)
    assert new.warnings == []  # a resumed run remembers that states do recur


def test_what_cannot_be_counted() -> None:
    with pytest.raises(UserError, match="use key=obs"):
        VisitCounts("position", place(num_envs=1), episodic=True).visit(episode([X, Y]))
    with pytest.raises(UserError, match="needs an image"):
        VisitCounts("image", place(), episodic=True)
    with pytest.raises(UserError, match="discrete"):
        VisitCounts("obs", place(actions="continuous"), episodic=False, of="state_action")
    with pytest.raises(UserError, match="use key=obs"):
        VisitCounts("position", place(), episodic=False, of="state_action")
    with pytest.raises(UserError, match="stores no positions"):
        VisitCounts("position", place(), episodic=False).keys(
            torch.zeros(1, 4), torch.zeros(1), torch.zeros(1, 4)
        )


def test_in_a_real_env_the_start_is_known() -> None:
    """Turning on the spot in MiniGrid leads nowhere new."""
    pytest.importorskip("minigrid")
    envs = Envs("MiniGrid-Empty-5x5-v0", 2)
    tally = VisitCounts("auto", place(), episodic=True)
    counts = [tally.visit(envs.step(torch.zeros(2, dtype=torch.int64))[0]).tolist() for _ in range(3)]
    assert counts == [[2, 2], [3, 3], [4, 4]]
