"""Two explorers as one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from critex.algorithms import load_config
from critex.bonus import WelfordScaler
from critex.cli.train import train_config
from critex.errors import UserError
from critex.explorers import (
    Counts,
    CountsConfig,
    E3BConfig,
    EllipticalConfig,
    ExplorationConfig,
    NovelDConfig,
    explorer_class,
    make_explorer,
)
from critex.run import to_dict
from tests.explorers.rollouts import episode, flat, place, rollout

X, Y = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(("symbol", "expected"), [("*", [1.0, 0.0, 0.0]), ("+", [2.0, 0.5**0.5, 3**-0.5])])
def test_product_and_sum_by_hand(symbol: str, expected: list[float]) -> None:
    """1[N = 1] and 1/√N of y, y, y."""
    cls = explorer_class(f"counts{symbol}counts")
    explorer = cls(
        cls.Config(first=CountsConfig(kind="first_visit", key="obs"), second=CountsConfig(key="obs")),
        place(num_envs=1),
    )
    assert explorer.bonus_rollout(episode([X, Y, Y, Y])).flatten().tolist() == pytest.approx(expected)
    assert explorer.metrics()["bonus_raw"] == pytest.approx(sum(expected) / 3)


def test_parts_keep_their_scaling_and_the_whole_has_its_own() -> None:
    steps = rollout(20)
    cls = explorer_class("counts+counts")
    part = CountsConfig(scaling="welford")
    explorer = cls(cls.Config(scaling="welford", first=part, second=part), place())
    one = Counts(part, place()).bonus_rollout(steps)
    torch.testing.assert_close(explorer.bonus_rollout(steps), WelfordScaler()(2 * one))


def test_losses_add_up_and_measures_combine() -> None:
    cls = explorer_class("rnd*icm")
    explorer = cls(cls.Config(), place())
    batch = flat(rollout(5))
    expected = explorer.first.loss(batch) + explorer.second.loss(batch)
    assert explorer.loss(batch).item() == expected.item()
    first, second = (
        p.measure(batch.obs, batch.action, batch.next_obs)[0] for p in (explorer.first, explorer.second)
    )
    assert torch.equal(explorer.measure(batch.obs, batch.action, batch.next_obs)[0], first * second)


def test_what_the_parts_can_do() -> None:
    pair = CountsConfig(of="state_action")
    cls = explorer_class("counts+counts")
    explorer = cls(cls.Config(first=pair, second=pair), place())
    raw, _ = explorer.measure_actions(torch.eye(4))
    assert torch.equal(raw, torch.full((4, 3), 2.0))
    assert explorer.compares_actions and not explorer.episodic
    half = cls(cls.Config(first=pair, second=CountsConfig(scope="episodic")), place())
    assert not half.compares_actions and half.episodic
    assert explorer_class("e3b*noveld") is explorer_class("e3b*noveld")


def test_counts_that_never_grow_are_named_in_a_part_too(capsys: pytest.CaptureFixture[str]) -> None:
    cls = explorer_class("cae+counts")
    explorer, steps = cls(cls.Config(second=CountsConfig(key="obs")), place()), rollout(1000)
    for _ in range(6):
        steps.obs, steps.next_obs = torch.rand(2, *steps.reward.shape, 4)
        explorer.bonus_rollout(steps)
        explorer.metrics()
    assert capsys.readouterr().err.count("no state was visited twice") == 1


def test_parts_draw_their_own_noise() -> None:
    """The product of two Thompson bonuses is as often negative as positive; with one stream for both it never is."""
    cls = explorer_class("cae*cae")
    part = EllipticalConfig(strategy="thompson")
    bonus = cls(cls.Config(first=part, second=part), place()).bonus_rollout(rollout(100))
    assert 0.3 < (bonus < 0).double().mean() < 0.7


def test_three_parts_draw_three_kinds_of_noise() -> None:
    part = EllipticalConfig(strategy="thompson")
    product = explorer_class("cae*cae").Config(first=part, second=part)
    cls = explorer_class("cae*cae+cae")
    made = cls(cls.Config(first=product, second=part), place())
    seeds = {x._generator.initial_seed() for x in (made.first.first, made.first.second, made.second)}
    assert len(seeds) == 3


def test_parts_may_be_on_two_devices() -> None:
    cls = explorer_class("cae*counts")
    here, there = torch.ones(3), torch.ones(3, device="meta")
    raw, scaled = cls(cls.Config(), place())._join((there, there), (here, here))
    assert raw.device == scaled.device == there.device


def test_the_whole_enters_targets_only_if_both_parts_do() -> None:
    setting = place()
    assert not explorer_class("bdqn+acb")(explorer_class("bdqn+acb").Config(), setting).in_targets
    assert explorer_class("acb+acb")(explorer_class("acb+acb").Config(), setting).in_targets


def test_times_binds_closer_than_plus() -> None:
    cls = explorer_class("counts+counts*rnd")
    assert cls.symbol == "+" and cls.explorers[1].symbol == "*"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("e3b*novelty", {}, "did you mean noveld"),
        ("e3b*", {}, "name two explorers, or one alone"),
        ("e3b*noveld", {"recompute": True}, "outlives the episode"),
        ("rnd+icm", {"bonus_in": "value"}, "cannot compare actions"),
        ("none+cae", {}, "name two explorers, or one alone"),
        ("cae+acb", {"bonus_in": "value", "alpha": "auto"}, "is set from the scaled bonus"),
    ],
)
def test_what_does_not_go_together(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_explorer(ExplorationConfig(explorer=name, **options), place())


def test_pairs_across_episode_ends_are_for_the_inverse_dynamics_alone() -> None:
    """RND and NovelD learn the true final observations, those that their bonus is paid for."""
    cls = explorer_class("e3b*rnd")
    explorer = cls(cls.Config(first=E3BConfig(cross_episode_ends=True)), place())
    steps = rollout(20)
    prepared = explorer.prepare(steps)
    assert torch.equal(explorer.second.loss(prepared), explorer.second.loss(steps))
    assert not torch.equal(explorer.first.loss(prepared), explorer.first.loss(steps))


def test_options_of_parts_are_checked() -> None:
    config = explorer_class("e3b*noveld").Config
    with pytest.raises(UserError, match="not for its parts"):
        config(first=E3BConfig(scaling="batch"))
    crossing = config(first=E3BConfig(cross_episode_ends=True), second=NovelDConfig())
    with pytest.raises(UserError, match="learns from rollouts"):
        make_explorer(ExplorationConfig(explorer="e3b*noveld", bonus=crossing), place())
    two = explorer_class("e3b*icm").Config
    with pytest.raises(UserError, match="the same for both"):
        two(first=E3BConfig(cross_episode_ends=True))


def test_command_line_and_config_file() -> None:
    flags = ["--explorer", "e3b*noveld", "--bonus.first.width", "32", "--bonus.second.key", "obs"]
    cfg = train_config("dqn", [*flags, "--bonus.scaling", "welford"])
    assert (cfg.bonus.first.width, cfg.bonus.second.key, cfg.bonus.scaling) == (32, "obs", "welford")
    assert load_config("dqn", to_dict(cfg)) == cfg
