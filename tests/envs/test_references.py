import pytest
import torch

from critex.envs.references import FORWARD, LEFT, RIGHT, follow_wall, random_steps
from critex.errors import UserError


def test_the_wall_follower_reads_the_depth() -> None:
    torch.manual_seed(0)
    blocked = torch.full((1, 30, 40, 4), 100, dtype=torch.uint8)
    blocked[:, :, 10:30, 3] = 2
    assert follow_wall(blocked).tolist() == [LEFT]
    beside = torch.full((1, 30, 40, 4), 100, dtype=torch.uint8)
    beside[:, :, 36:, 3] = 8
    assert follow_wall(beside).tolist() == [FORWARD]
    open_ = torch.full((200, 30, 40, 4), 100, dtype=torch.uint8)
    assert set(follow_wall(open_).tolist()) == {FORWARD, RIGHT}
    assert set(random_steps(open_).tolist()) == {FORWARD, LEFT, RIGHT}


def test_other_observations_are_refused_in_one_line() -> None:
    for obs in (torch.zeros(2, 4), {"rgb": torch.zeros(2, 6, 8, 3)}):
        with pytest.raises(UserError, match="sensors=image"):
            random_steps(obs)
