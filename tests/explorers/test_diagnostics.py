"""Features that collapse, and bonuses of which one part takes most."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import Tensor

from critex.data import Replay, Transition
from critex.embedding import Embedding
from critex.explorers import EllipticalConfig, Setting
from critex.explorers.base import PATIENCE
from critex.explorers.cae import CAEExplorer
from critex.explorers.diagnostics import EPISODES, EarlyShare, early_warning, summarise


def test_closed_form() -> None:
    """Four points (±a, 0, 1) and (0, ±b, 1): covariance diag(a²/2, b²/2, 0)."""
    phi = torch.tensor([[2.0, 0, 1], [-2, 0, 1], [0, 1, 1], [0, -1, 1]])
    found = summarise(phi, ridge=0.5)
    assert found.eigenvalues == pytest.approx([2.0, 0.5, 0.0], abs=1e-12)
    assert found.norm == pytest.approx(3.5)
    assert found.variance_share == pytest.approx(2.5 / 3.5)
    assert found.effective_rank == pytest.approx(math.exp(-(0.8 * math.log(0.8) + 0.2 * math.log(0.2))))
    assert found.warnings == [] and found.action_share is None  # too few steps to judge
    assert found.metrics()["phi_norm"] == pytest.approx(7.0)


@pytest.mark.parametrize(("n", "d"), [(5, 20), (20, 5)])
def test_both_ways_to_the_eigenvalues(n: int, d: int) -> None:
    phi = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.eigvalsh(phi.double().T.cov(correction=0)).flip(0)[:5]
    assert summarise(phi, 1.0).eigenvalues[:5] == pytest.approx(expected.tolist(), abs=1e-6)


def test_features_that_hardly_vary_are_warned_of() -> None:
    noise = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    assert summarise(noise, 1.0).warnings == []
    assert "hardly varies" in summarise(10 + 0.01 * noise, 1.0).warnings[0]
    assert "hardly varies" in summarise(torch.ones(20, 8), 1.0).warnings[0]
    assert summarise(100 + noise, 1.0).warnings == []  # far from zero, but it varies by more than λ
    line = torch.arange(50.0)[:, None] * torch.ones(8)
    assert "1 of its 8 dimensions" in summarise(line, 1.0).warnings[0]
    assert "compared with λ = 1" in summarise(0.01 * noise, 1.0).warnings[0]


def test_the_share_of_the_action() -> None:
    """Orthogonal coordinates, each seen n times, add n/(λ + n) each: one of the state, three of the action."""
    action = torch.eye(3).repeat(4, 1)
    state = torch.zeros(12, 2)
    assert summarise(torch.cat([state, action], 1), 0.5, 3).action_share == pytest.approx(1.0)
    phi = torch.cat([torch.cat([torch.zeros(12, 1), action], 1), torch.eye(4)[:1].repeat(6, 1)])
    share = 3 * (4 / 4.5) / (3 * (4 / 4.5) + 6 / 6.5)
    found = summarise(phi, 0.5, 3)
    assert found.action_share == pytest.approx(share) and share > 0.7
    assert "74 % of the bonus comes from the action" in " ".join(found.warnings)


def test_varying_actions_do_not_hide_features_that_collapse() -> None:
    rng = torch.Generator().manual_seed(0)
    state, action = torch.randn(60, 1, generator=rng) * torch.ones(6), torch.eye(4).repeat(15, 1)
    found = summarise(torch.cat([state, action], 1), 1.0, 4)
    assert found == replace(summarise(state, 1.0), action_share=found.action_share)
    assert "φ varies in 1 of its 6 dimensions" in found.warnings[0]


def test_the_share_of_the_first_steps() -> None:
    early = EarlyShare()
    long, short = [10.0] * 10 + [1.0] * 30, [10.0] * 10
    for _ in range(EPISODES):
        assert early.value is None
        for episode in (long, short):  # a short one does not count
            for t, bonus in enumerate(episode):
                early.add([bonus, 0.0], [t == 0, t == 0])  # and neither does an env without a bonus
    early.add([0.0, 0.0], [True, True])
    assert early.value == pytest.approx(100 / 130) and "77 % of the bonus" in early.warnings[0]
    copy = EarlyShare()
    copy.load_state_dict(early.state_dict())
    assert copy.state_dict() == early.state_dict() and copy.value == early.value
    assert early_warning(0.7) == [] == early_warning(None)


def step(phi: Tensor, action: Tensor, start: bool) -> Transition:
    n = len(phi)
    no = torch.zeros(n, dtype=torch.bool)
    return Transition(phi, action, torch.zeros(n), phi, no, no, torch.full((n,), start))


def explorer(**options: Any) -> CAEExplorer:
    embedding = Embedding.of(lambda obs: obs, 4, gym.spaces.Discrete(3), takes_action=False)
    return CAEExplorer(EllipticalConfig(**options), Setting(embedding, num_envs=2))


def test_a_run_warns_once_of_features_that_do_not_vary(capsys: pytest.CaptureFixture[str]) -> None:
    cae, same = explorer(embedding="state"), torch.ones(2, 4)
    for i in range(3 * PATIENCE):
        for t in range(20):
            cae.bonus(step(same, torch.zeros(2, dtype=torch.long), start=t == 0))
        values = cae.metrics()
        said = capsys.readouterr().err
        assert ("hardly varies" in said) == (i == PATIENCE - 1)
    assert values["phi_variance"] == 0 and values["phi_norm"] == 4


def test_a_run_warns_once_of_features_that_collapse(capsys: pytest.CaptureFixture[str]) -> None:
    """Four states that φ told apart become one: the rebuilt memory falls from four dimensions to one."""
    weight = torch.eye(4)
    embedding = Embedding.of(lambda obs: obs @ weight, 4, gym.spaces.Discrete(3), takes_action=False)
    options = EllipticalConfig(embedding="state", phi_norm=10.0, rebuild_every=2)
    cae = CAEExplorer(options, Setting(embedding, num_envs=2))
    replay, no = Replay(100), torch.zeros(2, dtype=torch.long)

    def live(logs: int) -> str:
        for _ in range(logs):
            for t in range(2):
                replay.add(step(torch.eye(4)[2 * t : 2 * t + 2], no, start=t == 0))
                cae.bonus(step(torch.eye(4)[2 * t : 2 * t + 2], no, start=t == 0))
            cae.refresh(replay)
            dimensions.append(cae.metrics()["effective_dimension"])
        return capsys.readouterr().err

    dimensions: list[float] = []
    assert "collapsing" not in live(2 * PATIENCE) and dimensions[-1] == pytest.approx(4, abs=0.01)
    resumed = CAEExplorer(options, Setting(embedding, num_envs=2))
    resumed.load_state_dict(cae.state_dict())
    cae = resumed
    weight = torch.ones(4, 4)
    assert "A has 1 effective dimensions, and had 4" in live(PATIENCE)
    assert dimensions[-1] == pytest.approx(1, abs=0.01) and "collapsing" not in live(PATIENCE)


def test_a_long_rollout_is_summarised_over_all_its_envs() -> None:
    """128 steps of 16 envs: one row in sixteen is kept. φ tells in which env a step was."""
    obs = torch.eye(16).expand(128, 16, 16)
    embedding = Embedding.of(lambda obs: obs, 16, gym.spaces.Discrete(3), takes_action=False)
    cae = CAEExplorer(EllipticalConfig(embedding="state"), Setting(embedding, num_envs=16))
    no = torch.zeros(128, 16, dtype=torch.bool)
    cae.bonus_rollout(Transition(obs, no.long(), torch.zeros(128, 16), obs, no, no, no))
    assert cae.metrics()["phi_rank"] > 14  # sixteen points span fifteen directions


def test_steps_and_a_rollout_give_the_same_metrics_and_survive_a_checkpoint() -> None:
    rng = torch.Generator().manual_seed(0)
    obs, action = torch.randn(30, 2, 4, generator=rng), torch.randint(3, (30, 2), generator=rng)
    steps = [step(o, a, start=t == 0) for t, (o, a) in enumerate(zip(obs, action, strict=True))]
    one, two, resumed = explorer(), explorer(), explorer()
    for s in steps[:20]:
        one.bonus(s)
    resumed.load_state_dict(one.state_dict())
    for s in steps[20:]:
        one.bonus(s)
        resumed.bonus(s)
    stacked = Transition(
        obs,
        action,
        torch.zeros(30, 2),
        obs,
        *(
            torch.stack([getattr(s, name) for s in steps])
            for name in ("terminated", "truncated", "episode_start")
        ),
    )
    two.bonus_rollout(stacked)
    values = one.metrics()
    assert values == resumed.metrics()
    assert values == pytest.approx(two.metrics(), rel=1e-4)
    assert 0 < values["bonus_action"] < 1 and values["phi_rank"] > 3
