"""PPO's written-out loss is autograd's, its written-out policy the modules'; both step aside for changed networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import Tensor, nn

from critex.algorithms.ppo import PPO, Config
from critex.data import Batch
from critex.networks.fast import known_gradients
from critex.networks.policies import Gaussian, Trunk, Value
from tests.algorithms.continuous import double_precision

OBS = gym.spaces.Box(-1, 1, (4,))
ACTIONS = {"continuous": gym.spaces.Box(-1, 1, (2,)), "discrete": gym.spaces.Discrete(3)}
SMALL: dict[str, Any] = {"rollout": 32, "minibatches": 4, "epochs": 2, "hidden": (16, 8), "num_envs": 2}


def make(actions: str = "continuous", **options: Any) -> PPO:
    torch.manual_seed(0)
    agent = PPO(Config(**{**SMALL, **options}), OBS, ACTIONS[actions], torch.device("cpu"))
    with torch.no_grad():
        for p in agent.weights:  # from their small heads and log σ = 0
            p.add_(0.3 * torch.randn_like(p))
    return agent


def taken(actions: str, *shape: int) -> Tensor:
    return torch.randint(3, shape) if actions == "discrete" else torch.randn(*shape, 2)


def minibatch(agent: PPO, actions: str, n: int = 60) -> dict[str, Tensor]:
    """A third with ratio 1 and the old values, the others with ratios and values beyond the bounds on both sides."""
    obs, action = torch.randn(n, 4), taken(actions, n)
    with torch.no_grad():
        now, value = agent.actor.log_prob(agent.actor(obs), action), agent.critic(obs).squeeze(-1)
    moved = torch.arange(n) % 3 - 1.0
    shift = moved * torch.linspace(0.0, 1.0, n)
    advantage = torch.randn(n)
    advantage[:6] = 0.0
    return {
        "obs": obs,
        "action": action,
        "log_prob": now - shift,
        "value": value + shift.roll(1),
        "target": value + torch.randn(n),
        "advantage": advantage,
    }


def rollout(seed: int, actions: str = "continuous") -> tuple[Batch, Tensor]:
    torch.manual_seed(seed)
    obs, none = torch.randn(33, 2, 4), torch.zeros(32, 2, dtype=torch.bool)
    batch = Batch(obs[:-1], taken(actions, 32, 2), torch.randn(32, 2), obs[1:], none, none, none)
    return batch, obs[-1]


def learn(agent: PPO, updates: int, actions: str = "continuous") -> dict[str, Any]:
    for seed in range(updates):
        batch, last = rollout(seed, actions)
        with torch.no_grad():
            phi = agent.critic.embed(batch.obs)
        losses = agent.update(batch, phi, last)
    return losses


slow_loss: Any = PPO.loss.__wrapped__  # type: ignore[attr-defined]


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("options", [{}, {"clip_value": False}, {"entropy_coef": 0.3}, {"shared": True}])
def test_loss_and_gradients(actions: str, options: dict[str, Any]) -> None:
    with double_precision():
        agent = make(actions, **options)
        batch = minibatch(agent, actions)
        (fast, phi, parts), (slow, its_phi, its_parts) = agent.loss(**batch), slow_loss(agent, **batch)
        torch.testing.assert_close((fast, phi, parts), (slow, its_phi, its_parts), rtol=1e-10, atol=1e-12)
        gradients = [torch.autograd.grad(loss, agent.weights) for loss in (fast, slow)]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)
        assert known_gradients(slow, agent.weights) is None
        # a trunk that is shared gets two gradients, which only autograd adds
        assert (known_gradients(fast, agent.weights) is None) == agent.shared


def test_phi_carries_the_gradient_of_an_explorer_that_learns() -> None:
    with double_precision():
        agent = make(explorer="cae_plus")
        batch = minibatch(agent, "continuous")
        totals = [
            loss + phi.square().sum() for loss, phi, _ in (agent.loss(**batch), slow_loss(agent, **batch))
        ]
        gradients = [torch.autograd.grad(total, agent.weights) for total in totals]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)
    assert not make(explorer="cae").loss(**minibatch(make(), "continuous"))[1].requires_grad


@pytest.mark.parametrize("actions", ACTIONS)
def test_actions_are_those_of_the_modules(actions: str) -> None:
    agent, obs = make(actions), torch.randn(200, 4)
    noise = agent.actor.noise(200, generator=agent.generator)
    with torch.no_grad():
        wanted = agent.act(obs, noise)
    got = agent.acting()(obs, noise)
    assert got.dtype == wanted.dtype and not got.requires_grad
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("explorer", ["cae", "cae_plus"])
def test_updates_each_way(actions: str, explorer: str) -> None:
    with double_precision():
        agents = [make(actions, explorer=explorer, entropy_coef=0.01, fast=fast) for fast in (True, False)]
        losses = [learn(agent, 5, actions) for agent in agents]
        torch.testing.assert_close(*(agent.weights for agent in agents), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(*losses, rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("error")
def test_a_diverged_network_gives_no_warnings() -> None:
    agent = make()
    batch = minibatch(agent, "continuous")
    for p in agent.weights:
        p.data.mul_(1e38)
    assert not agent.loss(**batch)[0].isfinite()
    agent.acting()(batch["obs"], torch.randn(60, 2))


# --- stepping aside ---


def hooked(agent: PPO) -> None:
    agent.actor.trunk.body[0].register_forward_hook(lambda module, given, out: 2 * out)


def other_activation(agent: PPO) -> None:
    agent.actor.trunk.body[1] = nn.ReLU()


def normalized(agent: PPO) -> None:
    agent.actor.trunk.body[1] = nn.Sequential(nn.LayerNorm(16), nn.Tanh())


def other_trunk(agent: PPO) -> None:
    class Mine(Trunk):
        def forward(self, obs: Any) -> Tensor:
            return 2 * super().forward(obs)

    agent.actor.trunk.__class__ = Mine


def other_policy(agent: PPO) -> None:
    class Mine(Gaussian):
        def log_prob(self, mean: Tensor, action: Tensor) -> Tensor:
            return 2 * super().log_prob(mean, action)

    agent.actor.__class__ = Mine


def patched(agent: PPO) -> None:
    sample, log_prob = agent.actor.sample, agent.actor.log_prob
    agent.actor.sample = lambda mean, noise: 2 * sample(mean, noise)  # type: ignore[method-assign]
    agent.actor.log_prob = lambda mean, action: 2 * log_prob(mean, action)  # type: ignore[method-assign]


def frozen(agent: PPO) -> None:
    agent.actor.log_std.requires_grad_(False)


def subclassed(agent: PPO) -> None:
    class Mine(PPO):
        def value(self, phi: Tensor) -> Tensor:
            return 2 * super().value(phi)

    agent.__class__ = Mine


CHANGES = [hooked, other_activation, normalized, other_trunk, other_policy, patched, frozen, subclassed]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_actor_or_agent_is_used_as_it_is(change: Callable[[PPO], None]) -> None:
    """With `fast` and without it, it learns the same, to the bit."""
    agents = [make(fast=fast) for fast in (True, False)]
    assert agents[0].acting() != agents[0].act and agents[1].acting() == agents[1].act
    for agent in agents:
        torch.manual_seed(1)
        change(agent)
        assert agent.acting() == agent.act
        learn(agent, 2)
    assert all(map(torch.equal, agents[0].weights, agents[1].weights))


def test_a_changed_critic_or_device_too() -> None:
    class Mine(Value):
        def forward(self, obs: Any) -> Tensor:
            return 2 * super().forward(obs)

    agents = []
    for fast in (True, False):
        torch.manual_seed(0)
        cfg = Config(**SMALL, fast=fast)
        critic = lambda: Mine(Trunk(OBS, (16, 8)))  # noqa: E731
        agents.append(PPO(cfg, OBS, ACTIONS["continuous"], torch.device("cpu"), critic))
        learn(agents[-1], 2)
    assert all(map(torch.equal, agents[0].weights, agents[1].weights))
    assert agents[0].acting() != agents[0].act
    agents[0].device = torch.device("cuda")
    assert agents[0].acting() == agents[0].act
