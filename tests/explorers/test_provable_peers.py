"""ACB and BDQN as explorers."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from critex.data import Transition
from critex.embedding import Embedding
from critex.errors import UserError
from critex.explorers import ExplorationConfig, Setting, value_bonus
from critex.explorers.acb import ACB, ACBConfig
from critex.explorers.bdqn import BDQN, BDQNConfig
from critex.explorers.elliptical import Elliptical, EllipticalConfig

ACTIONS = 2


def one_hot_setting(dim=3):
    embedding = Embedding.of(nn.Identity().forward, dim, gym.spaces.Discrete(ACTIONS), takes_action=False)
    return Setting(embedding, gym.spaces.Box(0, 1, (dim,), np.float32), 1, seed=3)


def transition(state, action, dim=3):
    no = torch.zeros(1, dtype=torch.bool)
    obs = torch.eye(dim)[[state]]
    return Transition(
        obs=obs, action=torch.tensor([action]), reward=torch.zeros(1), next_obs=obs, terminated=no, truncated=no,
        episode_start=no,
    )  # fmt: skip


def trained_acb(*seen, **options):
    torch.manual_seed(0)
    acb = ACB(ACBConfig(scaling="none", ensemble=256, **options), one_hot_setting())
    optimizer = torch.optim.Adam(acb.learned(), lr=0.02)
    for _ in range(600):
        optimizer.zero_grad()
        sum(map(acb.loss, seen)).backward()
        optimizer.step()
    return acb


def test_acb_pays_less_for_what_it_has_been_trained_on():
    seen, new = transition(0, 0), transition(1, 1)
    acb = trained_acb(seen)
    known = acb.measure(seen.obs, seen.action)[0]
    assert known < 0.6 * acb.measure(new.obs, new.action)[0]
    assert acb.measure_actions(seen.obs)[0].argmin() == 0


def test_acb_tells_new_pairs_apart_with_a_block_for_each_action():
    """wᵀ[φ(s); a] of a new pair follows from three pairs that share its state, its action, or neither."""
    seen, new = (transition(0, 0), transition(1, 1), transition(1, 0)), transition(0, 1)

    def ratio(acb):
        return acb.measure(new.obs, new.action)[0] / acb.measure(seen[0].obs, seen[0].action)[0]

    joined, blocks = trained_acb(*seen), trained_acb(*seen, embedding="block", phi_norm=2.0)
    assert ratio(blocks) > 2 > ratio(joined)
    each = blocks.measure_actions(new.obs)[0]
    torch.testing.assert_close(each[0, 1:], blocks.measure(new.obs, new.action)[0])
    torch.testing.assert_close(each[0, :1], blocks.measure(seen[0].obs, seen[0].action)[0])


def test_bdqn_draws_have_the_variance_of_each_actions_posterior():
    bdqn = BDQN(BDQNConfig(sample_every=1), one_hot_setting())
    for _ in range(3):
        bdqn.bonus(transition(0, 0))
    state, draws = torch.eye(3)[[0]], []
    for _ in range(2000):
        bdqn._delta = None
        draws.append(bdqn.measure_actions(state)[0][0])
    variance = torch.stack(draws).var(0)
    torch.testing.assert_close(variance, torch.tensor([0.25, 1.0], dtype=torch.float64), rtol=0.15, atol=0)


def test_bdqn_holds_its_draw():
    bdqn = BDQN(BDQNConfig(sample_every=5), one_hot_setting())
    state, seen = torch.eye(3)[[1]], []
    for _ in range(10):
        seen.append(bdqn.measure_actions(state)[0][0, 1].item())
        bdqn.bonus(transition(0, 0))
    assert len(set(seen[:5])) == 1
    assert len(set(seen[5:])) == 1
    assert seen[0] != seen[5]


def test_bdqn_draws_for_actions_and_not_for_targets():
    cfg, state = ExplorationConfig(bonus_in="value", alpha=0.5), torch.eye(3)[[0]]
    bdqn, cae = (
        BDQN(BDQNConfig(), one_hot_setting()),
        Elliptical(EllipticalConfig(embedding="block"), one_hot_setting()),
    )
    assert value_bonus(state, bdqn, cfg).abs().min() > 0
    assert not value_bonus(state, bdqn, cfg, target=True).any()
    assert value_bonus(state, cae, cfg, target=True).abs().min() > 0


def test_blocks_need_discrete_actions_and_the_other_features_do_not():
    box = gym.spaces.Box(-1, 1, (2,))
    embedding = Embedding.of(lambda obs, action: obs, 3, box, takes_action=True)
    setting = Setting(embedding, gym.spaces.Box(0, 1, (3,), np.float32))
    for explorer, config in (BDQN, BDQNConfig), (ACB, ACBConfig):
        with pytest.raises(UserError, match="use embedding=auto"):
            explorer(config(embedding="block"), setting)
        explorer(config(embedding="auto"), setting)
