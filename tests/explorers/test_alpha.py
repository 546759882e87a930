"""α: a number, or `auto`, which follows the scales of rewards and bonuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from critex.cli.train import train_config
from critex.errors import UserError
from critex.explorers import ExplorationConfig, _alpha
from critex.explorers._alpha import RATIO, Alpha, fixed_or_auto
from critex.run.config import from_dict, to_dict

GAMMA = 0.9


@pytest.fixture(autouse=True)
def no_warmup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_alpha, "WARMUP", 0)


def steps(seed: int = 0, t: int = 40, n: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random rewards, bonuses and beginnings of episodes, [T, N]."""
    generator = torch.Generator().manual_seed(seed)
    reward, bonus = (torch.randn(t, n, generator=generator) for _ in range(2))
    return 3 * reward, bonus.abs(), torch.rand(t, n, generator=generator) < 0.1


def discounted(x: torch.Tensor, start: torch.Tensor) -> np.ndarray[Any, Any]:
    """x_t + γx_{t−1} + … since the beginning of the episode, [T, N]."""
    total, sums = torch.zeros(x.shape[1], dtype=torch.float64), []
    for row, new in zip(x.double(), start, strict=True):
        total = GAMMA * total * ~new + row
        sums.append(total)
    return torch.stack(sums).numpy()


def test_dense_rewards() -> None:
    """The spread of the bonus is c times that of the reward."""
    reward, bonus, start = steps()
    expected = RATIO * reward.double().numpy().std() / bonus.double().numpy().std()
    assert Alpha("auto", GAMMA).observe(reward, bonus, start) == pytest.approx(expected, rel=1e-12)


def test_rare_rewards() -> None:
    """The bonus of an episode has a spread of c."""
    _, bonus, start = steps()
    expected = RATIO / discounted(bonus, start).std()
    for reward in (torch.zeros_like(bonus), -0.001 * bonus, torch.eye(*bonus.shape)):
        assert Alpha("auto", GAMMA).observe(reward, bonus, start) == pytest.approx(expected, rel=1e-12)


def test_decay() -> None:
    reward, bonus, start = steps()
    alpha, falling = Alpha("auto", GAMMA), Alpha("auto_decay", GAMMA, total=bonus.numel() * 4)
    for seen in (1, 2, 3, 4, 5):
        weight = max(1 - seen / 4, 0)
        assert falling.observe(reward, bonus, start) == pytest.approx(
            weight * alpha.observe(reward, bonus, start)
        )


def test_it_is_finite_whatever_comes() -> None:
    zeros, false = torch.zeros(1), torch.zeros(1, dtype=torch.bool)
    alpha = Alpha("auto")
    assert alpha.value == alpha.observe(zeros, zeros, false) == RATIO
    for _ in range(50):  # a bonus that hardly changes counts as one with a tenth of its mean as its spread
        alpha.observe(zeros + torch.randn(1), zeros + 5, false)
    assert 0 < 5 * alpha.value < 10 * RATIO * 2


@given(unit=st.floats(1e-3, 1e3), seed=st.integers(0, 100))
def test_units_do_not_matter(unit: float, seed: int) -> None:
    """With the bonus in another unit αβ is the same, and with a dense reward in a larger one it grows as the reward does."""
    reward, bonus, start = (x.double() if x.is_floating_point() else x for x in steps(seed))
    alpha = Alpha("auto", GAMMA).observe(reward, bonus, start)
    assert Alpha("auto", GAMMA).observe(reward, unit * bonus, start) * unit == pytest.approx(alpha)
    assert Alpha("auto", GAMMA).observe((1 + unit) * reward, bonus, start) == pytest.approx(
        (1 + unit) * alpha
    )


def test_one_by_one_or_at_once_and_through_a_checkpoint() -> None:
    reward, bonus, start = steps()
    whole = Alpha("auto", GAMMA)
    whole.observe(reward, bonus, start)
    single = Alpha("auto", GAMMA)
    for i, row in enumerate(zip(reward, bonus, start, strict=True)):
        if i == 17:
            state, single = single.state_dict(), Alpha("auto", GAMMA)
            single.load_state_dict(state)
        single.observe(*row)
    assert single.value == whole.value
    assert single.state_dict()["moments"] == whole.state_dict()["moments"]


def test_unrolls_of_several_workers_do_not_continue_each_other() -> None:
    _, bonus, start = steps()
    alpha = Alpha("auto", GAMMA)
    for _ in range(2):
        alpha.observe(0 * bonus, bonus, start, apart=True)
    sums = np.concatenate([discounted(bonus, start)] * 2)
    assert alpha.value == pytest.approx(RATIO / sums.std())


def test_the_first_steps_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_alpha, "WARMUP", 30)
    reward, bonus, start = steps(n=1)
    spiked = bonus.clone()
    spiked[3] = 1e6
    start[10] = True
    plain, after = (Alpha("auto", GAMMA).observe(reward, b, start) for b in (bonus, spiked))
    assert after == plain != RATIO


def test_a_number_stays_what_it_is() -> None:
    alpha = Alpha(0.3)
    assert alpha.observe(*steps()) == alpha.value == 0.3
    assert set(alpha.metrics()) == {"alpha", "bonus_share"}
    other = Alpha(0.2)
    other.load_state_dict(alpha.state_dict())
    assert other.value == 0.2
    idle = Alpha(0.0)
    assert idle.observe(*steps()) == 0 and idle.metrics() == {}


def test_a_bonus_that_is_measured_later_has_no_share_here() -> None:
    alpha = Alpha(0.3, in_reward=False)
    alpha.observe(*steps())
    assert alpha.metrics() == {"alpha": 0.3}


def test_the_share_of_the_bonus() -> None:
    alpha = Alpha(0.5)
    alpha.observe(torch.tensor([[1.0], [-1.0]]), torch.tensor([[3.0], [-1.0]]), torch.zeros(2, 1) > 0)
    assert alpha.metrics() == {"alpha": 0.5, "bonus_share": pytest.approx(2 / (2 + 2))}


def test_one_warning_when_the_bonus_outweighs_the_reward(capsys: pytest.CaptureFixture[str]) -> None:
    ones, never = torch.ones(100, 1), torch.zeros(100, 1) > 0
    alpha = Alpha(2.5)
    alpha.observe(ones, ones, never)
    alpha.metrics()
    assert "αβ is 2.5 times as large" in capsys.readouterr().err
    again = Alpha(2.5)
    again.load_state_dict(alpha.state_dict())
    for warned in (alpha, again):
        warned.observe(ones, ones, never)
        warned.metrics()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("value", "rewards", "in_reward"), [(0.9, 100, True), (2.5, 1, True), (2.5, 0, True), (2.5, 100, False)]
)
def test_no_warning(value: float, rewards: int, in_reward: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A smaller bonus, a reward that is rare or has not been found, and a bonus in the value are no reason."""
    alpha = Alpha(value, in_reward=in_reward)
    reward = (torch.arange(100.0) < rewards).float()[:, None]
    alpha.observe(reward, torch.ones(100, 1), torch.zeros(100, 1) > 0)
    assert alpha.metrics() and capsys.readouterr().err == ""


def test_the_option() -> None:
    cfg = train_config("dqn", ["--explorer", "cae", "--alpha", "auto"])
    assert cfg.alpha == "auto" and from_dict(type(cfg), to_dict(cfg)).alpha == "auto"
    assert train_config("dqn", ["--explorer", "cae", "--alpha", "0.3"]).alpha == 0.3
    with pytest.raises(UserError, match=r"^--alpha takes FLOAT\|auto\|auto_decay, not 'x'"):
        train_config("dqn", ["--alpha", "x"])
    with pytest.raises(UserError, match="alpha is -1.0; it must be at least 0"):
        train_config("dqn", ["--alpha", "-1"])
    with pytest.raises(UserError, match="config key 'alpha'"):
        from_dict(ExplorationConfig, {"alpha": "car"})


@pytest.mark.parametrize("alpha", ["auto_decay", "car", float("nan"), -1.0])
def test_other_loops_take_a_number_or_auto(alpha: Any) -> None:
    with pytest.raises(UserError, match="alpha"):
        fixed_or_auto(alpha)
    with pytest.raises(UserError, match="gamma is 1.5"):
        fixed_or_auto("auto", 1.5)
    assert fixed_or_auto(0.5).value == 0.5 and fixed_or_auto("auto", GAMMA).rule == "auto"


def test_rows_of_some_environments() -> None:
    """An environment without a row keeps its sum until its next one."""
    reward, bonus, start = steps(n=2)
    some, both = Alpha("auto", GAMMA), Alpha("auto", GAMMA)
    for t, (r, b, s) in enumerate(zip(reward, bonus, start, strict=True)):
        rows = [0, 1] if t < 20 else [1]
        some.observe(r[rows], b[rows], s[rows], envs=rows)
        both.observe(r, b, s)
    sums = discounted(bonus, start)
    assert some.state_dict()["sums"][1] == pytest.approx(both.state_dict()["sums"][1])
    assert some.state_dict()["sums"][0] == pytest.approx(sums[19, 0])
    assert some.state_dict()["moments"][0][0] == 60
