"""V-trace against a recursion written out by hand, and in its closed forms."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from critex.data import gae, vtrace


def by_hand(log_ratio, discount, reward, value, last, rho_clip, c_clip):  # type: ignore[no-untyped-def]
    """One environment, plain floats, the definition of the paper: v_t = V_t + Σ_k (Π γc) δ_k."""
    steps = len(reward)
    rho = [min(rho_clip, math.exp(x)) for x in log_ratio]
    c = [min(c_clip, math.exp(x)) for x in log_ratio]
    values = [*value, last]
    delta = [rho[t] * (reward[t] + discount[t] * values[t + 1] - values[t]) for t in range(steps)]
    v = []
    for t in range(steps):
        total, weight = values[t], 1.0
        for k in range(t, steps):
            total += weight * delta[k]
            weight *= discount[k] * c[k]
        v.append(total)
    after = [*v[1:], last]
    return v, [rho[t] * (reward[t] + discount[t] * after[t] - values[t]) for t in range(steps)]


@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0.1, 3), st.floats(0.1, 3))
def test_against_the_definition(seed: int, steps: int, rho_clip: float, c_clip: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    log_ratio, reward, value = (torch.randn(steps, 2, generator=rng, dtype=torch.float64) for _ in range(3))
    discount = 0.9 * (torch.rand(steps, 2, generator=rng, dtype=torch.float64) < 0.8)
    last = torch.randn(2, generator=rng, dtype=torch.float64)
    v, advantage = vtrace(log_ratio, discount, reward, value, last, rho_clip=rho_clip, c_clip=c_clip)
    for n in range(2):
        columns = (x[:, n].tolist() for x in (log_ratio, discount, reward, value))
        wanted_v, wanted_advantage = by_hand(*columns, last[n].item(), rho_clip, c_clip)
        torch.testing.assert_close(v[:, n], torch.tensor(wanted_v, dtype=torch.float64))
        torch.testing.assert_close(advantage[:, n], torch.tensor(wanted_advantage, dtype=torch.float64))


def test_on_policy_it_is_the_n_step_return() -> None:
    reward, value = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[9.0], [8.0], [7.0]])
    v, advantage = vtrace(torch.zeros(3, 1), torch.full((3, 1), 0.5), reward, value, torch.tensor([16.0]))
    assert v.flatten().tolist() == [
        1 + 0.5 * 2 + 0.25 * 4 + 0.125 * 16,
        2 + 0.5 * 4 + 0.25 * 16,
        4 + 0.5 * 16,
    ]
    assert torch.equal(advantage, v - value)  # r + γv' − V, and v = r + γv'


def test_on_policy_it_is_gae_with_lambda_one() -> None:
    rng = torch.Generator().manual_seed(0)
    reward, value = torch.randn(7, 3, generator=rng), torch.randn(7, 3, generator=rng)
    ended, last = torch.rand(7, 3, generator=rng) < 0.3, torch.randn(3, generator=rng)
    v, advantage = vtrace(torch.zeros(7, 3), 0.9 * ~ended, reward, value, last)
    wanted, returns = gae(reward, value, last, ended, torch.zeros_like(ended), gamma=0.9, lam=1.0)
    torch.testing.assert_close(v, returns)
    torch.testing.assert_close(advantage, wanted)


def test_an_impossible_action_ends_the_trace() -> None:
    """π(a|s) = 0: the step is worth nothing, and v is V before it."""
    log_ratio = torch.tensor([[0.0], [-math.inf], [0.0]])
    reward, value = torch.ones(3, 1), torch.tensor([[0.0], [5.0], [0.0]])
    v, advantage = vtrace(log_ratio, torch.ones(3, 1), reward, value, torch.zeros(1))
    assert v.flatten().tolist() == [1 + 5, 5, 1] and advantage[1].item() == 0


def test_no_gradient_and_nothing_changed() -> None:
    value = torch.ones(3, 1, requires_grad=True)
    before = value.detach().clone()
    v, advantage = vtrace(torch.zeros(3, 1), torch.ones(3, 1), torch.ones(3, 1), value, torch.ones(1))
    assert not v.requires_grad and not advantage.requires_grad and torch.equal(value.detach(), before)
