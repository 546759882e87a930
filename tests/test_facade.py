"""critex.CAE and critex.CAEPlus in a hand-written loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import critex


def embed(obs: Tensor, action: Tensor) -> Tensor:
    return torch.cat([obs, action], -1)


OBS, ACTION = torch.tensor([[3.0, 0.0]]), torch.tensor([[4.0]])


def test_first_bonuses_in_closed_form() -> None:
    explorer = critex.CAE(embed, alpha=2.0, ridge=1.0, scaling="none")
    b = 25.0  # φᵀφ / λ, then b/(1+b), b/(1+2b), …
    for n in range(4):
        assert explorer(OBS, ACTION).item() == pytest.approx(2 * (b / (1 + n * b)) ** 0.5, rel=1e-12)


def test_ridge_and_squared() -> None:
    explorer = critex.CAE(embed, alpha=1.0, ridge=0.1, strategy="ucb_squared", scaling="none")
    unit = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0]])
    got = [explorer(*unit).item() for _ in range(3)]
    assert got == pytest.approx([10, 1 / 1.1, 1 / 2.1])


def test_scaling_divides_by_the_running_standard_deviation() -> None:
    raw = critex.CAE(embed, scaling="none")
    scaled = critex.CAE(embed, scaling="welford")
    rng = torch.Generator().manual_seed(0)
    seen: list[float] = []
    for _ in range(50):
        obs, action = torch.randn(1, 2, generator=rng), torch.randn(1, 1, generator=rng)
        seen.append(raw(obs, action).item())
        expected = seen[-1] / np.std(seen) if len(seen) > 1 else seen[-1]
        assert scaled(obs, action).item() == pytest.approx(expected, rel=1e-9)


def test_arrays_in_arrays_out() -> None:
    explorer = critex.CAE(embed)
    out = explorer(np.ones((1, 2)), np.ones((1, 1), dtype=np.float32))
    assert isinstance(out, np.ndarray) and out.shape == (1,)
    assert isinstance(explorer(OBS, ACTION), Tensor)
    assert isinstance(explorer([[1.0, 2.0]], [[3.0]]), np.ndarray)


def test_observations_of_several_parts() -> None:
    explorer = critex.CAE(
        lambda obs: obs["a"]["b"], embedding="state_and_action", num_actions=3, scaling="none", num_envs=2
    )
    out = explorer(
        {"a": {"b": np.array([[3.0, 0], [0, 3]])}, "c": np.zeros(2)}, np.array([1, 2], dtype=np.int32)
    )
    assert out.tolist() == pytest.approx([10**0.5, 10**0.5])  # orthogonal, so the second finds A as new


@pytest.mark.parametrize("form", ["state_and_action", "block"])
def test_integer_actions_as_a_column(form: str) -> None:
    column, flat = (
        critex.CAE(lambda obs: obs, embedding=form, num_actions=3, num_envs=2, scaling="none")
        for _ in range(2)
    )
    obs, actions = torch.randn(2, 4), torch.tensor([2, 0])
    assert torch.equal(column(obs, actions[:, None]), flat(obs, actions))


def test_single_numbers_as_continuous_actions() -> None:
    explorer = critex.CAE(lambda obs: obs, embedding="state_and_action", scaling="none")
    assert explorer(torch.tensor([[3.0]]), torch.tensor([4.0])).item() == pytest.approx(5)


def test_episodic_memories_are_one_per_env() -> None:
    explorer = critex.CAE(embed, scope="episodic", scaling="none", num_envs=2)
    obs, action = OBS.repeat(2, 1), ACTION.repeat(2, 1)
    start = lambda *flags: torch.tensor(flags)  # noqa: E731
    assert explorer(obs, action, episode_start=start(True, True)).tolist() == pytest.approx([5, 5])
    second = (25 / 26) ** 0.5
    assert explorer(obs, action, episode_start=start(True, False)).tolist() == pytest.approx([5, second])


def test_next_state_form() -> None:
    explorer = critex.CAE(lambda obs: obs, embedding="next_state", scaling="none")
    assert explorer(torch.zeros(1, 2), torch.zeros(1), next_obs=OBS).item() == pytest.approx(3)


def test_state_and_discrete_action() -> None:
    explorer = critex.CAE(lambda obs: obs, embedding="state_and_action", num_actions=3, scaling="none")
    assert explorer(OBS, torch.tensor([2])).item() == pytest.approx(10**0.5)


def test_cae_owns_no_parameter_and_does_not_hold_the_critic() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    explorer = critex.CAE(critex.last_hidden(net), embedding="next_state")
    explorer(torch.zeros(1, 3), torch.zeros(1), next_obs=torch.randn(1, 3))
    assert list(explorer.parameters()) == []
    assert not any(m is net for m in explorer.modules())


def test_state_round_trip_before_the_first_call() -> None:
    one = critex.CAE(embed, strategy="thompson", seed=5)
    for _ in range(5):
        one(torch.randn(1, 2), torch.randn(1, 1))
    two = critex.CAE(embed, strategy="thompson", seed=9)
    two.load_state_dict(one.state_dict())
    for _ in range(5):
        obs, action = torch.randn(1, 2), torch.randn(1, 1)
        assert one(obs, action).item() == two(obs, action).item()


def test_presets_and_precedence() -> None:
    official = critex.CAE(embed, preset="official", scaling="none").config
    assert (official.strategy, official.scope, official.ridge) == ("ucb_squared", "episodic", 0.1)
    assert critex.CAE(embed, preset="official", scaling="none", ridge=0.5).config.ridge == 0.5
    assert critex.CAE(embed).config.strategy == "ucb"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"strategy": "ubc"}, "did you mean ucb"),
        ({"scope": "forever"}, "unknown scope"),
        ({"scaling": "welfrod"}, "did you mean welford"),
        ({"preset": "papr"}, "did you mean paper"),
        ({"ridgee": 1.0}, "did you mean ridge"),
        ({"warmup": -1}, "warmup is -1"),
        ({"ridge": float("inf")}, "ridge must be positive"),
        ({"preset": "official"}, "give scaling='welford'"),
        ({"rebuild_every": 10}, "replay buffer"),
    ],
)
def test_bad_keywords(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        critex.CAE(embed, **keywords)


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match="last_hidden"):
        critex.CAE(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="num_envs=2"):
        critex.CAE(embed)(OBS.repeat(2, 1), ACTION.repeat(2, 1))
    with pytest.raises(ValueError, match=r"one row per env.*shape \[\]"):
        critex.CAE(lambda obs: obs, embedding="block", num_actions=3)(np.zeros(2), np.int64(1))
    with pytest.raises(ValueError, match="need num_actions="):
        critex.CAE(lambda obs: obs, embedding="state_and_action")(OBS, torch.tensor([1]))
    with pytest.raises(ValueError, match="dim=4"):
        critex.CAE(embed, dim=4)(OBS, ACTION)
    with pytest.raises(ValueError, match="episode_start="):
        critex.CAE(embed, scope="episodic")(OBS, ACTION)
    with pytest.raises(ValueError, match="next_obs="):
        critex.CAE(lambda obs: obs, embedding="next_state")(OBS, ACTION)
    with pytest.raises(ValueError, match=r"\[N, d\]"):
        critex.CAE(lambda obs, action: obs[0])(OBS, ACTION)


class TestCAEPlus:
    def make(self, **keywords: object) -> tuple[nn.Linear, critex.CAEPlus]:
        torch.manual_seed(0)
        body = nn.Linear(3, 16)
        explorer = critex.CAEPlus(
            lambda obs, action: body(torch.cat([obs, action], -1)), dim=16, action_dim=1, **keywords
        )
        return body, explorer

    def test_parameters(self) -> None:
        _, explorer = self.make(u_dim=5, hidden=7)
        expected = (16 * 5 + 5) + (2 * 5 * 7 + 7) + (7 * 1 + 1) + 1  # U, f̄ and log σ
        assert sum(p.numel() for p in explorer.parameters()) == expected

    def test_loss_reaches_the_critic_and_u_but_the_bonus_does_not(self) -> None:
        body, explorer = self.make()
        explorer(OBS, ACTION)
        assert body.weight.grad is None
        explorer.loss(torch.randn(8, 2), torch.randn(8, 1), torch.randn(8, 2)).backward()
        assert body.weight.grad is not None and explorer.explorer.U.weight.grad is not None

    def test_needs_its_sizes(self) -> None:
        with pytest.raises(ValueError, match="dim="):
            critex.CAEPlus(embed)
