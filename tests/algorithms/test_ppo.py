"""PPO: losses and distributions in closed form, where the bonus enters, learning in seconds, golden numbers, resume."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from critex.algorithms import ppo
from critex.algorithms.ppo import PPO, Config, policy_loss, value_loss
from critex.data import Batch
from critex.data.normalize import RewardNormalizer
from critex.errors import UserError
from critex.explorers import CAEPlusConfig, EllipticalConfig, NoExplorer, NoOptions, Setting
from critex.networks.policies import Categorical, Gaussian, Trunk, Value
from critex.run import Checkpoints
from tests.algorithms.conftest import check_resume, metrics

OBS, ACTIONS = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Box(-1, 1, (2,))
GOLDEN = Path(__file__).parents[1] / "golden" / "ppo.json"
SMALL: dict[str, Any] = {"rollout": 16, "minibatches": 4, "epochs": 2, "hidden": (16, 8), "num_envs": 2}
RAW = {"normalize_reward": False}


def make(action_space: gym.Space = ACTIONS, **options: Any) -> PPO:
    torch.manual_seed(0)
    cfg = Config(**{**SMALL, **RAW, **options})
    return PPO(cfg, OBS, action_space, torch.device("cpu"))


def learn(agent: PPO, batch: Batch, last: torch.Tensor) -> dict[str, Any]:
    with torch.no_grad():
        phi = agent.critic.embed(batch.obs)
    return agent.update(batch, phi, last)


def rollout(
    t: int = 16, n: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[Batch, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    obs, final = (torch.randn(t + 1, n, 4, generator=rng, dtype=dtype) for _ in range(2))
    terminated, truncated = (torch.rand(t, n, generator=rng) < p for p in (0.1, 0.2))
    ended = (terminated | truncated).unsqueeze(-1)
    batch = Batch(
        obs=obs[:-1],
        action=torch.randn(t, n, 2, generator=rng, dtype=dtype),
        reward=torch.randn(t, n, generator=rng, dtype=dtype),
        next_obs=torch.where(ended, final[1:], obs[1:]),
        terminated=terminated,
        truncated=truncated,
        episode_start=torch.zeros(t, n, dtype=torch.bool),
    )
    return batch, obs[-1]


def weights(agent: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for net in (agent.actor, agent.critic) for p in net.parameters()])


# --- formulas ---


def test_clipped_surrogate_by_hand() -> None:
    """Ratios 1.5, 1.5, 0.5, 0.5 with advantages +2, −2, +2, −2: only the pessimistic side is cut."""
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5])
    advantage = torch.tensor([2.0, -2.0, 2.0, -2.0])
    log_prob = ratio.log().requires_grad_()
    loss = policy_loss(log_prob, torch.zeros(4), advantage, clip=0.2)
    assert loss.item() == pytest.approx(-(2 * 1.2 - 2 * 1.5 + 2 * 0.5 - 2 * 0.8) / 4)
    loss.backward()
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == pytest.approx([0.0, 2 * 1.5 / 4, -2 * 0.5 / 4, 0.0])


def test_clipped_value_loss_by_hand() -> None:
    """V_old = 0: V = 1 is cut to 0.2. Target 2: the cut error 1.8² counts; target 0: the whole error 1²."""
    value = torch.tensor([1.0, 1.0, 0.1], requires_grad=True)
    target = torch.tensor([2.0, 0.0, 1.1])
    loss = value_loss(value, torch.zeros(3), target, clip=0.2)
    assert loss.item() == pytest.approx(0.5 * (1.8**2 + 1.0 + 1.0) / 3)
    loss.backward()
    assert value.grad is not None
    assert value.grad.tolist() == pytest.approx([0.0, 1 / 3, -1 / 3])
    assert value_loss(value, torch.zeros(3), target, None).item() == pytest.approx(0.5 * (1 + 1 + 1) / 3)


def test_gaussian_is_torchs() -> None:
    torch.manual_seed(0)
    policy = Gaussian(Trunk(OBS, (8,)), ACTIONS)
    with torch.no_grad():
        policy.log_std.copy_(torch.tensor([-0.7, 0.4]))
    mean, z = policy(torch.randn(5, 3, 4)), torch.randn(5, 3, 2)
    reference = torch.distributions.Normal(mean, policy.log_std.exp())
    action = policy.sample(mean, z)
    torch.testing.assert_close(action, mean + policy.log_std.exp() * z)
    torch.testing.assert_close(policy.log_prob(mean, action), reference.log_prob(action).sum(-1))
    torch.testing.assert_close(policy.entropy(mean), reference.entropy().sum(-1).mean())
    assert policy.to_env(torch.tensor([[3.0, -0.5]])).tolist() == [[1.0, -0.5]]


def test_categorical_is_torchs() -> None:
    torch.manual_seed(0)
    policy = Categorical(Trunk(OBS, (8,)), gym.spaces.Discrete(3))
    logits = torch.tensor([[0.3, -1.0, 1.2]])
    reference = torch.distributions.Categorical(logits=logits)
    action = torch.tensor([2])
    torch.testing.assert_close(policy.log_prob(logits, action), reference.log_prob(action))
    torch.testing.assert_close(policy.entropy(logits), reference.entropy().mean())
    noise = policy.noise(40_000, 1, generator=torch.Generator().manual_seed(0))
    share = torch.bincount(policy.sample(logits, noise).flatten(), minlength=3) / 40_000
    torch.testing.assert_close(
        share, reference.probs[0], atol=4 * 0.5 / 200, rtol=0
    )  # four standard deviations


@pytest.mark.parametrize(
    ("obs", "act", "critic", "actor"),
    [
        (8, 2, 4801, 4868),
        (11, 3, 4993, 5126),
        (17, 6, 5377, 5708),
        (27, 8, 6017, 6480),
        (376, 17, 28353, 29410),
    ],
)
def test_parameter_counts(obs: int, act: int, critic: int, actor: int) -> None:
    """Swimmer, Hopper, Walker2d and HalfCheetah, Ant, Humanoid; CAE adds nothing."""
    space = gym.spaces.Box(-1, 1, (act,))
    agent = PPO(Config(explorer="cae"), gym.spaces.Box(-1, 1, (obs,)), space, torch.device("cpu"))
    counts = [sum(p.numel() for p in net.parameters()) for net in (agent.critic, agent.actor)]
    assert counts == [critic, actor]
    assert not list(agent.explorer.parameters())
    assert agent.explorer.gram.dim == 64 + act


def test_initial_weights_are_orthogonal() -> None:
    torch.manual_seed(0)
    critic = Value(Trunk(gym.spaces.Box(-1, 1, (64,)), (64, 64)))
    for layer, gain in [(layer, 2**0.5) for layer in list(critic.trunk.body)[::2]]:
        torch.testing.assert_close(
            layer.weight @ layer.weight.T, gain**2 * torch.eye(64), atol=1e-5, rtol=1e-5
        )
        assert not layer.bias.any()
    assert critic.head.weight.norm().item() == pytest.approx(1.0)
    assert Gaussian(Trunk(OBS, (8,)), ACTIONS).head.weight.norm(dim=1).tolist() == pytest.approx([0.01, 0.01])


# --- where the bonus goes ---


def test_bonus_enters_before_advantages() -> None:
    """Training with reward r and bonus β is training with the reward r + αβ and no bonus, to the bit."""
    batch, last = rollout()
    batch.bonus = torch.rand(16, 2)
    paid = make(explorer="cae", alpha=0.5)
    learn(paid, batch, last)
    plain, (other, _) = make(), rollout()
    other.reward = batch.reward + 0.5 * batch.bonus
    learn(plain, other, last)
    assert torch.equal(weights(paid), weights(plain))
    unpaid = make()
    learn(unpaid, batch, last)
    assert not torch.equal(weights(paid), weights(unpaid))


def test_batch_moments_and_clip_of_the_total_reward() -> None:
    batch, last = rollout()
    batch.bonus = torch.rand(16, 2)
    paid = make(explorer="cae", alpha=0.5, reward_clip=0.3, bonus=EllipticalConfig(scaling="batch"))
    reference = make(explorer="cae", alpha=0.5, bonus=EllipticalConfig(scaling="batch"))
    scaled = reference.explorer.scale(batch.bonus)
    assert not torch.allclose(scaled, batch.bonus)
    plain, (other, _) = make(), rollout()
    other.reward = (batch.reward + 0.5 * scaled.float()).clamp(-0.3, 0.3)
    learn(paid, batch, last)
    learn(plain, other, last)
    assert torch.equal(weights(paid), weights(plain))


def test_cae_leaves_no_gradient_and_cae_plus_trains_the_critic() -> None:
    batch, last = rollout()
    agent = make(explorer="cae_plus", alpha=0.0, value_coef=0.0)
    before = weights(agent), agent.explorer.U.weight.clone()
    losses = learn(agent, batch, last)
    assert losses["loss"] - losses["loss_policy"] > 0.5  # L_f is in it, the value loss is not
    critic = sum(p.numel() for p in agent.critic.parameters())
    assert not torch.equal(weights(agent)[-critic:], before[0][-critic:])  # L_f reaches the trunk through φ
    assert not torch.equal(agent.explorer.U.weight, before[1])
    plain = make(explorer="cae", alpha=0.0, value_coef=0.0)
    learn(plain, batch, last)
    assert torch.equal(weights(plain)[-critic:], before[0][-critic:])


def test_pairs_across_episode_ends_survive_the_shuffling() -> None:
    """In one minibatch of all, with the loss of CAE+ alone, the gradient is that of the rollout in time order."""
    batch, last = rollout()
    options = {"alpha": 0.0, "epochs": 1, "minibatches": 1, "explorer": "cae_plus"}
    for cross in (False, True):
        agent = make(bonus=CAEPlusConfig(cross_episode_ends=cross), **options)
        follow = torch.cat([batch.obs[1:], batch.next_obs[-1:]]) if cross else batch.next_obs
        expected = agent.explorer.inverse(
            *(agent.explorer.U(agent.critic.embed(x)) for x in (batch.obs, follow)), batch.action
        )
        losses = learn(agent, batch, last)
        got = losses["loss"] - losses["loss_policy"] - 0.5 * losses["loss_value"]
        assert got.item() == pytest.approx(expected.mean().item(), rel=1e-5)


def test_a_memory_cannot_be_rebuilt_without_a_replay_buffer() -> None:
    with pytest.raises(UserError, match="rebuild_every"):
        make(explorer="cae", bonus=EllipticalConfig(rebuild_every=100))


def test_truncation_bootstraps_only_when_asked() -> None:
    batch, last = rollout(t=1, n=16)
    batch.terminated[:], batch.truncated[:] = False, torch.arange(16) % 2 == 0
    for bootstrap in (False, True):
        agent, seen = make(rollout=1, num_envs=16, bootstrap_truncated=bootstrap), {}
        agent.compare = lambda seen=seen, **columns: seen.update(target=columns["target"]) or {}  # type: ignore[method-assign]
        with torch.no_grad():
            follow = torch.where(
                batch.truncated[0],
                agent.critic(batch.next_obs[0])[:, 0] * bootstrap,
                agent.critic(last)[:, 0],
            )
        learn(agent, batch, last)
        torch.testing.assert_close(seen["target"], batch.reward[0] + 0.99 * follow)


def test_the_bonus_joins_the_reward_after_its_normaliser_or_before_it() -> None:
    """With γ = 0 the target is r̃ itself."""
    batch, last = rollout()
    batch.reward, batch.bonus = 5 * batch.reward, torch.rand_like(batch.reward)
    for together in (False, True):
        options = {"normalize_reward": True, "normalize_bonus": together}
        agent, seen = make(explorer="cae", alpha=0.5, gamma=0.0, **options), {}
        agent.compare = lambda seen=seen, **columns: seen.update(target=columns["target"]) or {}  # type: ignore[method-assign]
        learn(agent, batch, last)
        normalize, bonus = RewardNormalizer(0.0, 2), 0.5 * batch.bonus
        mixed = normalize(batch.reward + bonus * together, batch.terminated) + bonus * (not together)
        torch.testing.assert_close(seen["target"].view_as(mixed), mixed)


def test_rewards_are_normalised_once_wherever_the_bonus_joins(train: Callable[..., Path]) -> None:
    """Without a bonus its place makes no difference, to the bit."""
    options = {
        "env": "Pendulum-v1",
        "steps": 256,
        "rollout": 64,
        "minibatches": 4,
        "num_envs": 2,
        "log_every": 1,
    }
    runs = [train("ppo", f"run{together}", normalize_bonus=together, **options) for together in (False, True)]
    assert metrics(runs[0]) == metrics(runs[1])


class Watcher(NoExplorer):
    """Keeps the rollouts that it is shown."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rollouts: list[Batch] = []

    def bonus_rollout(self, rollout: Batch, phi: torch.Tensor | None = None) -> torch.Tensor:
        self.rollouts.append(rollout.map(torch.clone))
        return rollout.bonus


def test_what_the_explorer_is_shown(train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalised, clipped observations, unclipped actions, raw rewards, true final observations."""
    watchers: list[Watcher] = []
    steps: list[tuple[Any, torch.Tensor]] = []

    def watcher(cfg: Config, setting: Setting, *, rollouts: bool) -> Watcher:
        assert rollouts and cfg.explorer == "none"
        watchers.append(Watcher(NoOptions(), setting))
        return watchers[-1]

    class Recorded(ppo.Envs):
        def step(self, action: torch.Tensor) -> Any:
            transition, obs = super().step(action)
            steps.append((transition.map(torch.clone), obs))
            return transition, obs

    monkeypatch.setattr(ppo, "make_explorer", watcher)
    monkeypatch.setattr(ppo, "Envs", Recorded)
    train("ppo", env="Pendulum-v1", steps=900, rollout=225, minibatches=9, epochs=1, num_envs=2)
    assert len(watchers[0].rollouts) == 2
    seen = [torch.cat(leaves) for leaves in zip(*(r.leaves() for r in watchers[0].rollouts), strict=True)]
    raw = [torch.stack(leaves) for leaves in zip(*(t.leaves() for t, _ in steps), strict=True)]
    shown, real = (Batch(*leaves) for leaves in (seen, raw))

    assert (
        shown.action.abs().max() > 2 and real.action.abs().max() == 2
    )  # the environment gets clipped actions
    torch.testing.assert_close(shown.action.clamp(-2, 2), real.action)
    assert torch.equal(shown.reward, real.reward)
    assert shown.obs.abs().max() <= 10 and shown.obs.std(dim=(0, 1)).sub(1).abs().max() < 0.3
    assert shown.truncated.sum() == 4 and not shown.terminated.any()
    ended = shown.ended[:-1]
    assert torch.equal(shown.obs[1:][~ended], shown.next_obs[:-1][~ended])
    assert not torch.isclose(shown.obs[1:][ended], shown.next_obs[:-1][ended]).all(-1).any()


# --- options ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bonus_in": "value"}, "bonus_in=reward"),
        ({"rollout": 15, "num_envs": 1}, "--minibatches 3 would"),
        ({"rollout": 4, "num_envs": 1}, "--minibatches 2 would"),
        ({"steps": 31}, "less than one rollout of 32"),
        ({"hidden": ()}, "hidden is empty; give the width"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Config(**{**SMALL, **options})


def test_other_action_spaces_are_refused() -> None:
    with pytest.raises(UserError, match="Box or Discrete"):
        make(gym.spaces.MultiBinary(3))


def test_whole_rollouts_and_a_falling_step_size(train: Callable[..., Path]) -> None:
    path = train("ppo", env="Pendulum-v1", steps=250, log_every=1, **SMALL)
    assert [line["step"] for line in metrics(path) if line["kind"] == "train"] == [
        32 * i for i in range(1, 8)
    ]
    optimizer = Checkpoints(path).newest()["parts"]["optimizer"]
    assert [group["lr"] for group in optimizer["param_groups"]] == pytest.approx([3e-4 / 7] * 2)


def test_evaluation_takes_the_mean_and_learns_nothing() -> None:
    agent = make()
    agent.see(torch.randn(50, 4), learn=True)
    before = agent.state_dict()
    obs = 3 * torch.randn(5, 4)
    with torch.no_grad():
        expected = agent.actor(agent.obs_normalizer(obs)).clamp(-1, 1)
    assert torch.equal(agent.policy(obs), expected)
    assert torch.equal(agent.state_dict()["obs_normalizer"]["mean"], before["obs_normalizer"]["mean"])


# --- learning ---


class Identity(gym.Env[Any, Any]):
    """One step: name the number you see. Reward −(a − s)², or 1 for the right one of four."""

    def __init__(self, discrete: bool) -> None:
        self.discrete = discrete
        self.observation_space = gym.spaces.Discrete(4) if discrete else gym.spaces.Box(-1, 1, (1,))
        self.action_space = gym.spaces.Discrete(4) if discrete else gym.spaces.Box(-2, 2, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        draw = self.np_random
        self.state = int(draw.integers(4)) if self.discrete else draw.uniform(-1, 1, 1).astype(np.float32)
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.state) if self.discrete else -float(((action - self.state) ** 2)[0])
        return self.state, reward, True, False, {}


gym.register("PpoIdentity-v0", Identity, kwargs={"discrete": False})
gym.register("PpoIdentityDiscrete-v0", Identity, kwargs={"discrete": True})


@pytest.mark.parametrize(
    ("env", "explorer", "start", "goal"),
    [("PpoIdentity-v0", "cae", -0.8, -0.3), ("PpoIdentityDiscrete-v0", "none", 0.4, 0.9)],
)
def test_learns_the_identity(
    train: Callable[..., Path], env: str, explorer: str, start: float, goal: float
) -> None:
    options = {
        "rollout": 64,
        "num_envs": 4,
        "minibatches": 4,
        "learning_rate": 5e-3,
        "steps": 4_096,
        "alpha": 0.01,
    }
    path = train("ppo", env=env, explorer=explorer, **options)
    returns = [line["return"] for line in metrics(path) if line["kind"] == "episode"]
    assert len(returns) == 4_096
    assert np.mean(returns[:256]) < start and np.mean(returns[-512:]) > goal


class Quadrant(gym.Env[Any, Any]):
    """One step: name the bright quarter of an image, alone or in a dict beside a vector that means nothing."""

    action_space = gym.spaces.Discrete(4)

    def __init__(self, nested: bool) -> None:
        self.nested = nested
        image, vector = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), gym.spaces.Box(-1, 1, (2,))
        self.observation_space = gym.spaces.Dict({"image": image, "vector": vector}) if nested else image

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(4))
        image = self.np_random.integers(0, 60, (8, 8, 3)).astype(np.uint8)
        row, column = 4 * (self.state // 2), 4 * (self.state % 2)
        image[row : row + 4, column : column + 4] += 180
        self.seen = {"image": image, "vector": np.zeros(2, np.float32)} if self.nested else image
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.seen, float(action == self.state), True, False, {}


gym.register("PpoQuadrant-v0", Quadrant, kwargs={"nested": False})
gym.register("PpoQuadrantDict-v0", Quadrant, kwargs={"nested": True})


@pytest.mark.parametrize(
    ("env", "explorer", "bonus"),
    [
        ("PpoQuadrant-v0", "cae", EllipticalConfig(scope="episodic")),
        ("PpoQuadrantDict-v0", "cae_plus", CAEPlusConfig(embedding="next_state")),
    ],
)
def test_learns_from_images_and_dicts_through_a_shared_trunk(
    train: Callable[..., Path], env: str, explorer: str, bonus: Any
) -> None:
    options = {"rollout": 32, "num_envs": 8, "minibatches": 4, "epochs": 4, "learning_rate": 3e-3}
    path = train(
        "ppo", env=env, explorer=explorer, bonus=bonus, alpha=0.01, steps=4_096, hidden=(32,), **options
    )
    returns = [line["return"] for line in metrics(path) if line["kind"] == "episode"]
    assert np.mean(returns[:256]) < 0.45 and np.mean(returns[-512:]) > 0.9


def test_a_shared_trunk_counts_once_and_gets_the_gradient_of_both() -> None:
    torch.manual_seed(0)
    space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    agent = PPO(Config(**SMALL), space, gym.spaces.Discrete(3), torch.device("cpu"))
    assert agent.actor.trunk is agent.critic.trunk
    assert len({id(p) for p in agent.weights}) == len(agent.weights)
    trunk = sum(p.numel() for p in agent.critic.trunk.parameters())
    assert sum(p.numel() for p in agent.weights) == trunk + 3 * (8 + 1) + (8 + 1)
    flat = make()
    assert flat.actor.trunk is not flat.critic.trunk  # vectors keep two networks, as in CleanRL
    shared = make(shared=True)
    assert shared.actor.trunk is shared.critic.trunk


# --- golden numbers and resume ---


def test_golden() -> None:
    """Fifty gradient steps on stored synthetic rollouts in float64: a change of results does not go unseen."""
    torch.set_default_dtype(torch.float64)
    try:
        options = {
            "bonus": CAEPlusConfig(u_dim=4, hidden=8, inverse_action="sampled", min_std=0.0),
            "epochs": 1,
            "minibatches": 2,
            "learning_rate": 3e-3,
        }
        agent = make(explorer="cae_plus", alpha=0.3, **options)
        losses, bonuses = [], []
        for i in range(25):
            batch, last = rollout(seed=i, dtype=torch.float64)
            batch.bonus = agent.explorer.bonus_rollout(batch)
            bonuses.append(batch.bonus.mean().item())
            losses.append(learn(agent, batch, last))
        batch, _ = rollout(seed=99, dtype=torch.float64)
        got = [
            losses[0]["loss"].item(), losses[-1]["loss"].item(), sum(x["loss_value"].item() for x in losses),
            losses[-1]["kl"].item(), bonuses[0], bonuses[-1],
            agent.critic(batch.obs).sum().item(), agent.actor(batch.obs).square().sum().item(),
        ]  # fmt: skip
    finally:
        torch.set_default_dtype(torch.float32)
    if os.environ.get("CRITEX_GOLDEN") == "write":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(got, indent=1) + "\n")
    assert got == pytest.approx(json.loads(GOLDEN.read_text()), rel=1e-6)


@pytest.mark.parametrize(
    ("env", "explorer"), [("Pendulum-v1", "cae_plus"), ("CartPole-v1", "cae"), ("Pendulum-v1", "none")]
)
def test_resume_is_exact(train: Callable[..., Path], env: str, explorer: str) -> None:
    """Killed in the middle of an update, after a checkpoint in the middle of every env's episode."""
    options: dict[str, Any] = {
        "env": env, "explorer": explorer, "steps": 6 * 198, "rollout": 66, "num_envs": 3, "minibatches": 6, "epochs": 2,
        "log_every": 1, "checkpoint_every": 1, "eval_every": 400, "eval_episodes": 2, "hidden": (16, 8),
    }  # fmt: skip
    if explorer != "none":
        options["bonus"] = ppo_options(explorer)(strategy="thompson", ridge=0.5)
    lines = check_resume(train, "ppo", **options)
    assert {line["kind"] for line in lines} == {"episode", "train", "eval"}


def ppo_options(explorer: str) -> type[Any]:
    return CAEPlusConfig if explorer == "cae_plus" else EllipticalConfig
