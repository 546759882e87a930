"""CAE in plain PyTorch, without importing critex: SAC-style critic, one environment, the paper's defaults.

The block between the marks is the whole method. A test shows that its bonuses equal those of `critex.CAE`.
"""

from __future__ import annotations

import gymnasium as gym
import torch
from torch import nn


class Critic(nn.Module):
    """Q(s,a) = θᵀφ(s,a)."""

    def __init__(self, obs_dim: int, action_dim: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(obs_dim + action_dim, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
        )
        self.head = nn.Linear(256, 1)

    def embed(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """φ(s,a), [N, 256]."""
        return self.body(torch.cat([obs, action], dim=-1))


# --- CAE ---------------------------------------------------------------------------------------------------
class CAE:
    def __init__(self, dim: int, alpha: float, ridge: float = 1.0) -> None:
        self.inverse, self.alpha = torch.eye(dim, dtype=torch.float64) / ridge, alpha  # A⁻¹
        self.n, self.mean, self.m2 = 0, 0.0, 0.0

    def __call__(self, phi: torch.Tensor) -> float:
        u = self.inverse @ phi
        bonus = (phi @ u).sqrt().item()  # β = √(φᵀA⁻¹φ)
        self.inverse -= torch.outer(u, u) / (1 + phi @ u)  # A ← A + φφᵀ
        self.n, delta = self.n + 1, bonus - self.mean
        self.mean += delta / self.n
        self.m2 += delta * (bonus - self.mean)
        std = (self.m2 / self.n) ** 0.5  # Algorithm 1: scale by the running standard deviation
        return self.alpha * (bonus / std if std > 1e-8 * abs(self.mean) else bonus)


# -----------------------------------------------------------------------------------------------------------


def run(steps: int = 200, seed: int = 0) -> list[float]:
    """Random actions on Pendulum, the bonuses they would earn."""
    torch.manual_seed(seed)
    env = gym.make("Pendulum-v1")
    env.action_space.seed(seed)
    critic = Critic(3, 1)
    explorer = CAE(256, alpha=0.2)
    obs, _ = env.reset(seed=seed)
    bonuses = []
    for _ in range(steps):
        action = env.action_space.sample()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        with torch.no_grad():
            phi = critic.embed(torch.as_tensor(obs)[None], torch.as_tensor(action)[None])[0].double()
        bonuses.append(explorer(phi))
        reward = float(reward) + bonuses[-1]  # r̃ = r + αβ; store this one in the replay buffer
        obs = env.reset()[0] if terminated or truncated else next_obs
    return bonuses


if __name__ == "__main__":
    bonuses = run()
    print(f"first bonus {bonuses[0]:.4f}, last {bonuses[-1]:.4f}")
