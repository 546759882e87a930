"""DQN in one file, in plain PyTorch. The lines marked `# CAE` make it explore; delete them and plain DQN is left.

python examples/dqn.py --env CartPole-v1 --steps 20000
"""

from __future__ import annotations

import argparse
import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import critex  # CAE


def main(
    env_id: str = "CartPole-v1", steps: int = 20_000, seed: int = 1, learning_starts: int = 1_000
) -> list[float]:
    """Train, and return the extrinsic return of every episode."""
    random.seed(seed)
    torch.manual_seed(seed)
    env = gym.make(env_id)
    obs_dim, num_actions = env.observation_space.shape[0], int(env.action_space.n)

    def network() -> nn.Module:
        return nn.Sequential(
            nn.Linear(obs_dim, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_actions)
        )

    q, target = network(), network()
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=2.5e-4)
    explorer = critex.CAE(q, alpha=0.1, envs=env)  # CAE
    replay: deque[tuple] = deque(maxlen=10_000)
    returns, total = [], 0.0

    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        epsilon = max(0.05, 1 - step / (0.5 * steps))
        if random.random() < epsilon:
            action = random.randrange(num_actions)
        else:
            with torch.no_grad():
                action = q(torch.as_tensor(obs)).argmax().item()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)  # what is reported: the reward alone
        reward = reward + explorer(obs[None], [action], ended=[terminated or truncated])[0]  # CAE
        replay.append((obs, action, reward, next_obs, terminated))
        obs = next_obs
        if terminated or truncated:
            returns.append(total)
            obs, total = env.reset()[0], 0.0

        if step >= learning_starts and step % 10 == 0:
            columns = zip(*random.sample(replay, 128), strict=True)
            s, a, r, s2, end = (torch.as_tensor(np.array(column)) for column in columns)
            with torch.no_grad():
                y = r.float() + 0.99 * ~end * target(s2).amax(1)
            loss = F.mse_loss(q(s).gather(1, a[:, None]).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 500 == 0:
            target.load_state_dict(q.state_dict())
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    returns = main(args.env, args.steps, args.seed)
    print(f"{len(returns)} episodes; mean return of the last 20: {np.mean(returns[-20:]):.1f}")
