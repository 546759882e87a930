import torch

from critex.data import gae


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
