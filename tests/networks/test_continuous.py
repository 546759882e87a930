"""The critic of continuous control, and the range of actions."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch

from critex.networks import Critic, action_range

OBS = gym.spaces.Box(-np.inf, np.inf, (3,))


def test_phi_is_what_the_critic_is_linear_in() -> None:
    critic, obs, action = Critic(OBS, 2, (16, 8)), torch.randn(5, 3), torch.randn(5, 2)
    phi = critic.embed(obs, action)
    assert phi.shape == (5, 8)
    torch.testing.assert_close(critic(obs, action), critic.head(phi).squeeze(-1))
    assert Critic(OBS, 2, (16, 8), outputs=3)(obs, action).shape == (5, 3)


def test_action_range() -> None:
    scale, centre = action_range(gym.spaces.Box(np.array([-1, 2]), np.array([1, 6]), dtype=np.float32))
    assert (scale.tolist(), centre.tolist()) == ([1.0, 2.0], [0.0, 4.0])
