import torch

from critex.data import Replay, Transition, gae, n_step_return


def flags(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.bool).T  # written env by env, used as [T, N]


def test_by_hand() -> None:
    # γ = 0.5, λ = 0.5: δ_2 = 3 + 0.5·8 − 1 = 6, δ_1 = 2 + 0.5·1 − 2 = 0.5, δ_0 = 1 + 0.5·2 − 4 = −2
    # Â_2 = 6, Â_1 = 0.5 + 0.25·6 = 2, Â_0 = −2 + 0.25·2 = −1.5
    zero = flags([0, 0, 0])
    advantage, returns = gae(
        torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[4.0], [2.0], [1.0]]), torch.tensor([8.0]),
        zero, zero, gamma=0.5, lam=0.5,
    )  # fmt: skip
    assert advantage[:, 0].tolist() == [-1.5, 2.0, 6.0]
    assert returns[:, 0].tolist() == [2.5, 4.0, 7.0]


def test_lambda_one_gives_discounted_returns() -> None:
    T, gamma = 50, 0.9
    reward, value, last = torch.randn(T, 4).double(), torch.randn(T, 4).double(), torch.randn(4).double()
    zero = torch.zeros(T, 4, dtype=torch.bool)
    _, returns = gae(reward, value, last, zero, zero, gamma=gamma, lam=1.0)
    for t in (0, 17, T - 1):
        discount = gamma ** torch.arange(T - t).double()
        exact = (discount[:, None] * reward[t:]).sum(0) + gamma ** (T - t) * last
        torch.testing.assert_close(returns[t], exact)


def test_lambda_zero_gives_one_step_errors() -> None:
    reward, value, last = torch.randn(9, 2), torch.randn(9, 2), torch.randn(2)
    zero = torch.zeros(9, 2, dtype=torch.bool)
    advantage, _ = gae(reward, value, last, zero, zero, gamma=0.99, lam=0.0)
    torch.testing.assert_close(advantage, reward + 0.99 * torch.cat([value[1:], last[None]]) - value)


def test_ends() -> None:
    """Three envs that end after step 0: one terminates, one is truncated, one does both at once."""
    terminated, truncated = flags([1, 0], [0, 0], [1, 0]), flags([0, 0], [1, 0], [1, 0])
    reward, value = torch.ones(2, 3), torch.full((2, 3), 10.0)
    final = torch.full((2, 3), 4.0)
    final[1] = float("nan")  # never read where nothing was truncated

    def run(final_value: torch.Tensor | None) -> list[float]:
        advantage, _ = gae(
            reward,
            value,
            torch.full((3,), 2.0),
            terminated,
            truncated,
            gamma=0.5,
            lam=0.9,
            final_value=final_value,
        )
        assert advantage[1].tolist() == [-8.0] * 3  # 1 + 0.5·2 − 10, and it never leaks into step 0
        return advantage[0].tolist()

    assert run(None) == [-9.0, -9.0, -9.0]  # 1 − 10
    assert run(final) == [-9.0, -7.0, -9.0]  # 1 + 0.5·4 − 10 where truncated, and only there


def steps(t: int, ends: dict[int, str], num_envs: int) -> Transition:
    """Step t of some envs: env i shows 100·i + t, pays that, and ends at the steps named."""
    obs = 100.0 * torch.arange(num_envs) + t
    terminated, truncated = (
        torch.full((num_envs,), ends.get(t) == kind) for kind in ("terminated", "truncated")
    )
    return Transition(
        obs=obs[:, None], action=torch.zeros(num_envs, 1), reward=obs.clone(), next_obs=obs[:, None] + 0.5,
        terminated=terminated, truncated=truncated, episode_start=torch.zeros(num_envs, dtype=torch.bool), bonus=10 * obs,
    )  # fmt: skip


def test_one_step_is_the_transition_itself() -> None:
    step = steps(3, {3: "terminated"}, 2)
    batch, total, next_obs, discount = n_step_return(step, step.reward, 0.9)
    assert (
        batch is step and total is step.reward and next_obs is step.next_obs and discount.tolist() == [0, 0]
    )


def test_a_window_holds_no_row_that_was_never_written() -> None:
    replay = Replay(50)
    one = torch.ones(2)
    flags = {name: torch.zeros(2, dtype=torch.bool) for name in ("terminated", "truncated", "episode_start")}
    for _ in range(3):
        replay.add(Transition(obs=one, action=one, reward=one, next_obs=one, **flags))
    window = replay.sample_windows(200, 5, 2)
    assert (window.obs == 1).all() and (window.reward == 1).all()


def test_n_steps_from_the_replay_in_closed_form() -> None:
    """γ = ½, three steps, two envs, a capacity that the vector steps do not divide; the bonus of every step counts."""
    ends = {4: "terminated", 8: "truncated"}
    replay = Replay(23, seed=0)
    for t in range(14):  # rows of t < 3 have been overwritten, in part
        replay.add(steps(t, ends, 2))
    window = replay.sample_windows(400, 3, 2)
    assert window.reward.shape == (3, 400)
    batch, total, next_obs, discount = n_step_return(window, window.reward + 0.1 * window.bonus, 0.5)
    seen = set()
    for row in range(400):
        first = int(batch.obs[row, 0])
        base, t = divmod(first, 100)
        m = next((k + 1 for k in range(3) if t + k in ends or t + k == 13), 3)
        wanted = sum(0.5**k * 2 * (first + k) for k in range(m))
        assert total[row].item() == wanted
        assert (
            next_obs[row, 0].item() == first + m - 1 + 0.5
        )  # the true final observation, not that of the next episode
        assert batch.next_obs[row, 0].item() == first + 0.5
        assert discount[row].item() == (0.0 if ends.get(t + m - 1) == "terminated" else 0.5**m)
        seen.add((base, t))
    assert len(seen) == 23  # every row can be the first
