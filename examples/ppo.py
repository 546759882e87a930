"""PPO in one file, in plain PyTorch, with gymnasium's vector environments.

The lines marked `# CAE` make it explore; those marked `# CAE+` turn CAE into CAE+. Delete the latter and CAE is left,
delete both and plain PPO is left.

python examples/ppo.py --env CartPole-v1 --steps 40960
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import critex  # CAE

NUM_ENVS, ROLLOUT, EPOCHS, MINIBATCHES = 4, 128, 4, 4


def network(obs_dim: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


def main(env_id: str = "CartPole-v1", steps: int = 40_960, seed: int = 1) -> list[float]:
    """Train, and return the extrinsic return of every episode."""
    torch.manual_seed(seed)
    envs = gym.make_vec(env_id, num_envs=NUM_ENVS)
    obs_dim, num_actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    actor, critic = network(obs_dim, num_actions), network(obs_dim, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=2.5e-4, eps=1e-5)
    explorer = critex.CAE(critic, alpha=0.05, envs=envs)  # CAE
    explorer = critex.CAEPlus(critic, alpha=0.05, envs=envs)  # CAE+
    optimizer.add_param_group({"params": explorer.parameters()})  # CAE+

    obs = torch.zeros(ROLLOUT + 1, NUM_ENVS, obs_dim)
    actions = torch.zeros(ROLLOUT, NUM_ENVS, dtype=torch.long)
    log_probs, rewards = torch.zeros(ROLLOUT, NUM_ENVS), torch.zeros(ROLLOUT, NUM_ENVS)
    ended = torch.zeros(ROLLOUT, NUM_ENVS, dtype=torch.bool)
    real = torch.ones(ROLLOUT, NUM_ENVS, dtype=torch.bool)  # a step, and not only the reset after an episode
    returns, total, last_ended = [], np.zeros(NUM_ENVS), torch.zeros(NUM_ENVS, dtype=torch.bool)
    obs[0] = torch.as_tensor(envs.reset(seed=seed)[0])

    for _ in range(steps // (ROLLOUT * NUM_ENVS)):
        for t in range(ROLLOUT):
            with torch.no_grad():
                policy = Categorical(logits=actor(obs[t]))
                actions[t] = policy.sample()
                log_probs[t] = policy.log_prob(actions[t])
            next_obs, reward, terminated, truncated, _ = envs.step(actions[t].numpy())
            obs[t + 1], rewards[t], real[t] = torch.as_tensor(next_obs), torch.as_tensor(reward), ~last_ended
            ended[t] = last_ended = torch.as_tensor(terminated | truncated)
            total += reward  # what is reported: the reward alone
            returns += total[last_ended.numpy()].tolist()
            total[last_ended.numpy()] = 0.0
        rewards += explorer.rollout(obs[:-1], actions, ended=ended)  # CAE

        with torch.no_grad():
            values = critic(obs).squeeze(-1)
        advantages, last = torch.zeros(ROLLOUT, NUM_ENVS), torch.zeros(NUM_ENVS)
        for t in reversed(range(ROLLOUT)):
            delta = rewards[t] + 0.99 * ~ended[t] * values[t + 1] - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * ~ended[t] * last
        targets = advantages + values[:-1]

        rows = real.flatten().nonzero().squeeze(-1)
        flat_obs, flat_next = obs[:-1].flatten(0, 1), obs[1:].flatten(0, 1)
        flat = [x.flatten() for x in (actions, log_probs, advantages, targets)]
        for _ in range(EPOCHS):
            for i in rows[torch.randperm(len(rows))].chunk(MINIBATCHES):
                action, old_log_prob, advantage, y = (x[i] for x in flat)
                policy = Categorical(logits=actor(flat_obs[i]))
                ratio = (policy.log_prob(action) - old_log_prob).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                policy_loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                value_loss = 0.5 * (critic(flat_obs[i]).squeeze(-1) - y).square().mean()
                loss = policy_loss + 0.5 * value_loss - 0.01 * policy.entropy().mean()
                loss = loss + explorer.loss(flat_obs[i], action, flat_next[i])  # CAE+
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
                optimizer.step()
        obs[0] = obs[-1]
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=40_960)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    returns = main(args.env, args.steps, args.seed)
    print(f"{len(returns)} episodes; mean return of the last 20: {np.mean(returns[-20:]):.1f}")
