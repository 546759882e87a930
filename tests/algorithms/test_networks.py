"""Networks that a user changes: LayerNorm, images, dicts, widths, and a critic of one's own."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from critex.algorithms import dqn, dsac, ppo, sac, td3
from critex.algorithms.agent import Agent, embedding_width, updates_due
from critex.data import Batch
from critex.errors import UserError
from tests.algorithms.continuous import ACTIONS, CPU, OBS, batch, parameters

IMAGE = gym.spaces.Box(0, 255, (12, 12, 3), np.uint8)
DICT = gym.spaces.Dict({"image": IMAGE, "keys": gym.spaces.Discrete(3, start=1), "a.b": OBS})


def observed(space: gym.Space[Any], n: int, seed: int) -> Any:
    rng = torch.Generator().manual_seed(seed)
    if isinstance(space, gym.spaces.Dict):
        return {key: observed(child, n, seed) for key, child in space.items()}
    if isinstance(space, gym.spaces.Discrete):
        return torch.randint(1, 4, (n,), generator=rng)
    if space is IMAGE:
        return torch.randint(256, (n, 12, 12, 3), dtype=torch.uint8, generator=rng)
    return torch.randn(n, 3, generator=rng)


def seen(space: gym.Space[Any], discrete: bool = False, n: int = 8) -> Batch:
    b = batch(n)
    b.obs, b.next_obs = observed(space, n, 0), observed(space, n, 1)
    if discrete:
        b.action = torch.arange(n) % 3
    return b


def updated(agent: Any, module: ModuleType, b: Batch) -> dict[str, Any]:
    return agent.update(b, 0) if module in (sac, td3) else agent.update(b)


@pytest.mark.parametrize("space", [IMAGE, DICT])
@pytest.mark.parametrize("module", [sac, td3, dsac, dqn])
def test_images_and_dicts(module: ModuleType, space: gym.Space[Any]) -> None:
    """φ lies above the encoder, the convolutions learn, and bytes reach them in [0, 1]."""
    torch.manual_seed(0)
    actions = gym.spaces.Discrete(3) if module is dqn else ACTIONS
    agent: Agent = module.Agent(module.Config(hidden=(16, 8), explorer="cae_plus"), space, actions, CPU)
    critic = agent.q if module is dqn else agent.q1  # type: ignore[attr-defined]
    image = critic.encode if space is IMAGE else critic.encode.entries[list(space).index("image")]  # type: ignore[call-overload]
    given: list[Tensor] = []
    image.layers[0].register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    before = [p.detach().clone() for p in parameters(critic.encode)]
    b = seen(space, module is dqn)
    b.bonus = agent.explorer.bonus(b)
    assert np.isfinite(float(updated(agent, module, b)["loss"]))
    assert min(x.min() for x in given) >= 0 and 0.9 < max(x.max() for x in given) <= 1
    assert all(not torch.equal(p, q) for p, q in zip(parameters(critic.encode), before, strict=True))
    assert agent.embedding.critic_dim == 8 and len(agent.policy(b.obs)) == 8


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "elu", "silu"])
def test_layer_norm_activations_and_widths(activation: Any) -> None:
    torch.manual_seed(0)
    shape: dict[str, Any] = {"actor_hidden": (12,), "critic_hidden": (16, 6), "activation": activation}
    agent = sac.SAC(sac.Config(layer_norm=True, **shape), OBS, ACTIONS, CPU)
    assert [type(m).__name__ for m in agent.q1.body][1::3] == ["LayerNorm", "LayerNorm"]
    assert agent.actor.head.in_features == 12 and agent.embedding.critic_dim == 6
    loss = [float(agent.update(batch(32), 1)["loss_bellman"]) for _ in range(60)]
    assert loss[-1] < 0.8 * loss[0]


class Own(nn.Module):
    """A bilinear critic: Q = θᵀ(Ws ∘ Va)."""

    def __init__(self) -> None:
        super().__init__()
        self.of_obs, self.of_action, self.head = nn.Linear(3, 5), nn.Linear(2, 5), nn.Linear(5, 1)

    def embed(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.of_obs(obs) * self.of_action(action)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.head(self.embed(obs, action)).squeeze(-1)


@pytest.mark.parametrize("module", [sac, td3])
def test_a_critic_of_ones_own(module: ModuleType) -> None:
    torch.manual_seed(0)
    agent = module.Agent(module.Config(explorer="cae", alpha=0.1), OBS, ACTIONS, CPU, Own)
    assert agent.explorer.gram.dim == 5 and isinstance(agent.target2, Own)
    loss = [float(agent.update(batch(32), 1)["loss_bellman"]) for _ in range(60)]
    assert loss[-1] < loss[0]
    with pytest.raises(UserError, match=r"Linear has no method embed\(obs, action\)"):
        embedding_width(nn.Linear(1, 1), OBS, ACTIONS, takes_action=True)


def test_a_shared_trunk_has_one_shape() -> None:
    with pytest.raises(UserError, match="--shared False"):
        ppo.PPO(ppo.Config(actor_hidden=(8,)), IMAGE, gym.spaces.Discrete(3), CPU)


def test_updates_due() -> None:
    """One update in ten steps, three in one, and 0.29 of them without a slip of rounding."""
    assert [updates_due(s, 0.1) for s in (9, 10, 30, 70)] == [0, 1, 3, 7]
    assert updates_due(100, 0.29) == 29 and updates_due(7, 3.0) == 21
    assert sum(updates_due(s + 1, 0.3) - updates_due(s, 0.3) for s in range(1000)) == 300
