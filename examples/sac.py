"""SAC in one file, in plain PyTorch. The lines marked `# CAE` make it explore; delete them and plain SAC is left.

python examples/sac.py --env Pendulum-v1 --steps 10000
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import critex  # CAE


class Critic(nn.Module):
    """Q(s, a)."""

    def __init__(self, obs_dim: int, action_dim: int) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = (
            nn.Linear(obs_dim + action_dim, 256),
            nn.Linear(256, 256),
            nn.Linear(256, 1),
        )

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        x = F.relu(self.fc1(torch.cat([obs, action], dim=-1)))
        return self.head(F.relu(self.fc2(x))).squeeze(-1)


class Actor(nn.Module):
    """π(a|s): a Gaussian squashed by tanh into the range of the actions."""

    def __init__(self, obs_dim: int, space: gym.spaces.Box) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.mean, self.log_std = nn.Linear(256, space.shape[0]), nn.Linear(256, space.shape[0])
        self.scale = torch.as_tensor((space.high - space.low) / 2)
        self.centre = torch.as_tensor((space.high + space.low) / 2)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """A sample and its log-density."""
        x = self.body(obs)
        log_std = -1.5 + 3.5 * torch.tanh(self.log_std(x))
        normal = torch.distributions.Normal(self.mean(x), log_std.exp())
        u = normal.rsample()
        y = torch.tanh(u)
        log_prob = normal.log_prob(u) - torch.log(self.scale * (1 - y.square()) + 1e-6)
        return y * self.scale + self.centre, log_prob.sum(-1)


def main(
    env_id: str = "Pendulum-v1", steps: int = 10_000, seed: int = 1, learning_starts: int = 1_000
) -> list[float]:
    """Train, and return the extrinsic return of every episode."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.make(env_id)
    env.action_space.seed(seed)
    obs_dim, action_dim = env.observation_space.shape[0], env.action_space.shape[0]
    actor = Actor(obs_dim, env.action_space)
    q1, q2, target1, target2 = (Critic(obs_dim, action_dim) for _ in range(4))
    target1.load_state_dict(q1.state_dict())
    target2.load_state_dict(q2.state_dict())
    log_temperature = torch.zeros((), requires_grad=True)
    q_optimizer = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=1e-3)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
    temperature_optimizer = torch.optim.Adam([log_temperature], lr=1e-3)
    explorer = critex.CAE(q1, alpha=0.2, envs=env)  # CAE

    s, s2 = (torch.zeros(steps, obs_dim) for _ in range(2))
    a, r, end = torch.zeros(steps, action_dim), torch.zeros(steps), torch.zeros(steps)
    returns, total = [], 0.0
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        if step < learning_starts:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = actor(torch.as_tensor(obs, dtype=torch.float32))[0].numpy()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)  # what is reported: the reward alone
        reward = reward + explorer(obs[None], action[None])[0]  # CAE
        s[step], a[step], s2[step] = torch.as_tensor(obs), torch.as_tensor(action), torch.as_tensor(next_obs)
        r[step], end[step] = float(reward), float(terminated)
        obs = next_obs
        if terminated or truncated:
            returns.append(total)
            obs, total = env.reset()[0], 0.0
        if step < learning_starts:
            continue

        i = torch.as_tensor(rng.integers(step + 1, size=256))
        temperature = log_temperature.exp().detach()
        with torch.no_grad():
            a2, log_prob = actor(s2[i])
            next_value = torch.minimum(target1(s2[i], a2), target2(s2[i], a2)) - temperature * log_prob
            y = r[i] + 0.99 * (1 - end[i]) * next_value
        q_loss = F.mse_loss(q1(s[i], a[i]), y) + F.mse_loss(q2(s[i], a[i]), y)
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()

        new, log_prob = actor(s[i])
        actor_loss = (temperature * log_prob - torch.minimum(q1(s[i], new), q2(s[i], new))).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        temperature_loss = -(log_temperature.exp() * (log_prob.detach() - action_dim)).mean()
        temperature_optimizer.zero_grad()
        temperature_loss.backward()
        temperature_optimizer.step()
        with torch.no_grad():
            for net, slow in ((q1, target1), (q2, target2)):
                for p, slow_p in zip(net.parameters(), slow.parameters(), strict=True):
                    slow_p.lerp_(p, 0.005)
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    returns = main(args.env, args.steps, args.seed)
    print(f"{len(returns)} episodes; mean return of the last 10: {np.mean(returns[-10:]):.1f}")
