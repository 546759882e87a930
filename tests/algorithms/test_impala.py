"""IMPALA: the losses in closed form, the memory, where the bonus enters, learning in seconds, golden numbers, resume."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from critex.algorithms.impala import IMPALA, Config, Network, Unroll, make_worker
from critex.data import Batch
from critex.errors import UserError
from critex.explorers import EXPLORERS, CAEPlusConfig, E3BConfig, EllipticalConfig
from critex.networks.nethack import NetHack
from critex.run import evaluate
from tests.algorithms.conftest import check_resume, metrics
from tests.networks.test_nethack import SPACE

OBS, ACTIONS, CPU = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3), torch.device("cpu")
GOLDEN = Path(__file__).parents[1] / "golden" / "impala.json"
SMALL: dict[str, Any] = {"unroll": 12, "num_envs": 2, "hidden": (8,)}


def make(space: gym.Space = OBS, actions: gym.spaces.Discrete = ACTIONS, **options: Any) -> IMPALA:
    torch.manual_seed(0)
    return IMPALA(Config(**{**SMALL, **options}), space, actions, CPU)


def unroll(agent: IMPALA, seed: int = 0, dtype: torch.dtype = torch.float32, ended: float = 0.15) -> Unroll:
    """Synthetic steps, with the behaviour of an older policy."""
    t, n = agent.cfg.unroll, agent.cfg.num_envs
    rng = torch.Generator().manual_seed(seed)
    obs, final = (torch.randn(t + 1, n, 4, generator=rng, dtype=dtype) for _ in range(2))
    terminated, truncated = (torch.rand(t, n, generator=rng) < ended / 2 for _ in range(2))
    over = terminated | truncated
    steps = Batch(
        obs=obs[:-1],
        action=torch.randint(agent.num_actions, (t, n), generator=rng),
        reward=torch.randn(t, n, generator=rng, dtype=dtype),
        next_obs=torch.where(over[..., None], final[1:], obs[1:]),
        terminated=terminated,
        truncated=truncated,
        episode_start=torch.cat([torch.ones(1, n, dtype=torch.bool), over[:-1]]),
    )
    log_prob = -torch.rand(t, n, generator=rng, dtype=dtype) - 0.5
    return Unroll(steps, obs[-1], agent.network.initial_state(n).to(dtype), log_prob)


# --- the network ---


@pytest.mark.parametrize(
    ("actions", "base"),
    [(8, 25_463_577), (10, 25_465_627), (11, 25_466_652), (12, 25_467_677), (16, 25_471_777)],
)
def test_the_papers_parameter_counts(actions: int, base: int) -> None:
    def size(**options: Any) -> int:
        with torch.device("meta"):
            net = Network(SPACE, actions, Config(network="paper", **options))
        return sum(p.numel() for p in net.parameters())

    assert size(unused_layers=True) == base and size() == base - 1024**2


def test_the_compact_network_is_the_default_without_a_gpu() -> None:
    cfg = Config(device="cpu")
    assert cfg.network == "compact" and cfg.widths == (256,)
    assert Config(network="paper").widths == (1024,)
    net = Network(SPACE, 16, cfg)
    assert isinstance(net.trunk[0], NetHack) and sum(p.numel() for p in net.parameters()) < 1_000_000


def test_a_whole_unroll_is_remembered_as_step_by_step() -> None:
    agent = make()
    rng = torch.Generator().manual_seed(1)
    phi, start = torch.randn(9, 2, 8, generator=rng), torch.rand(9, 2, generator=rng) < 0.3
    state = torch.randn(2, 2, 8, generator=rng)
    with torch.no_grad():
        whole, after = agent.network.remember(phi, start, state)
        for t in range(9):
            state = torch.where(start[t, :, None], 0.0, state)
            out, (h, c) = agent.network.lstm(phi[t : t + 1], (state[:1], state[1:]))
            state = torch.cat([h, c])
            torch.testing.assert_close(out[0], whole[t])
    torch.testing.assert_close(state, after)


def test_nothing_crosses_the_end_of_an_episode() -> None:
    agent = make()
    phi = torch.randn(6, 2, 8, requires_grad=True)
    start = torch.zeros(6, 2, dtype=torch.bool)
    start[3, 0] = True
    out, _ = agent.network.remember(phi, start, agent.network.initial_state(2))
    (gradient,) = torch.autograd.grad(out[5].sum(), phi)
    assert not gradient[:3, 0].any() and gradient[3:, 0].any() and gradient[:3, 1].any()


# --- the losses ---


def uniform(agent: IMPALA) -> None:
    """A policy that draws all actions alike, and a value of zero."""
    for head in (agent.network.actor, agent.network.critic):
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)


def test_losses_of_a_uniform_policy() -> None:
    """Σ over T of the mean over N: eleven actions, eighty steps."""
    agent = make(actions=gym.spaces.Discrete(11), unroll=80)
    uniform(agent)
    data = unroll(agent)
    data.steps.reward.zero_()
    losses = agent.update(data)
    assert losses["loss"].item() == pytest.approx(-0.005 * 80 * math.log(11), rel=1e-5)  # −0.9592
    assert losses["loss_policy"].item() == losses["loss_value"].item() == 0

    plus = make(
        actions=gym.spaces.Discrete(11), unroll=80, explorer="cae_plus", bonus=CAEPlusConfig(), alpha=0.0
    )
    uniform(plus)
    torch.nn.init.zeros_(plus.explorer.inverse.head.weight)
    loss = plus.update(data)["loss"].item()
    assert loss == pytest.approx((1 - 0.005) * 191.83, rel=1e-4)


def test_losses_by_hand() -> None:
    """Zero values, on-policy, one environment, two steps: v is the discounted return, and so is the advantage."""
    agent = make(unroll=2, num_envs=1, gamma=0.5, entropy_coef=0.0)
    uniform(agent)
    data = unroll(agent, ended=0)
    data.log_prob.fill_(-math.log(3))
    data.steps.reward = torch.tensor([[1.0], [4.0]])
    losses = agent.update(data)
    assert losses["loss_policy"].item() == pytest.approx(math.log(3) * (3 + 4) / 2)
    assert losses["loss_value"].item() == pytest.approx(0.5 * (9 + 16) / 2)
    assert losses["loss"].item() == pytest.approx(math.log(3) * 7 + 0.5 * 0.5 * 25)
    assert losses["rho"].item() == pytest.approx(1.0)


def test_the_bonus_joins_the_reward_before_v_trace() -> None:
    plain, paid = make(), make(explorer="cae", alpha=2.0, bonus=EllipticalConfig(scaling="none"))
    data = unroll(plain)
    data.steps.bonus = torch.rand(12, 2)
    given = paid.update(data)
    data.steps.reward = data.steps.reward + 2.0 * data.steps.bonus
    data.steps.bonus = torch.zeros(12, 2)
    wanted = plain.update(data)
    assert all(given[name] == wanted[name] for name in wanted)


def test_the_reward_is_clipped_with_its_bonus() -> None:
    clipped, plain = (
        make(explorer="cae", alpha=10.0, reward_clip=1.0, bonus=EllipticalConfig(scaling="none")),
        make(),
    )
    data = unroll(plain)
    data.steps.bonus = torch.rand(12, 2)
    given = clipped.update(data)
    data.steps.reward = (data.steps.reward + 10.0 * data.steps.bonus).clamp(-1, 1)
    data.steps.bonus = torch.zeros(12, 2)
    assert given["loss"] == plain.update(data)["loss"]


def test_gradients_are_cut_apart() -> None:
    """The network's and the explorer's gradient each have their own length."""
    agent = make(explorer="cae_plus", bonus=CAEPlusConfig(loss_coef=1e4), max_grad_norm=0.5)
    agent.update(unroll(agent))
    for parameters in (agent.network.parameters(), agent.explorer.learned()):
        length = torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm()
        assert length.item() == pytest.approx(0.5, rel=1e-4)


def test_inverse_dynamics_needs_no_second_pass() -> None:
    """L_f from the φ of the unroll equals L_f from its observations, at episode ends and across them."""
    for cross in (False, True):
        agent = make(explorer="cae_plus", bonus=CAEPlusConfig(cross_episode_ends=cross, u_dim=4))
        data = unroll(agent, ended=0.5)
        steps = data.steps
        assert steps.ended[:-1].any()
        obs = torch.cat([steps.obs, data.last_obs[None]])
        if cross:
            steps.next_obs[-1] = data.last_obs  # the φ after the last step is that of the reset
        explorer = agent.explorer
        from_phi = explorer.loss(explorer.prepare(steps), agent.network.embed(obs))
        torch.testing.assert_close(from_phi, explorer.loss(explorer.prepare(steps)))


@pytest.mark.parametrize("explorer", [*EXPLORERS, "acb+cae_plus"])
def test_every_explorer_learns_from_an_unroll(explorer: str) -> None:
    """Its loss takes the φ of T + 1 observations beside T steps."""
    agent = make(explorer=explorer)
    before = [p.clone() for p in agent.explorer.learned()]
    data = unroll(agent)
    data.steps.bonus = agent.explorer.bonus_rollout(data.steps)
    agent.update(data)
    learned = agent.explorer.learned()
    assert not learned or any(not torch.equal(p, old) for p, old in zip(learned, before, strict=True))


# --- collecting ---

CART = {"env": "CartPole-v1", "unroll": 30, "num_envs": 3, "hidden": (16,)}


def test_an_unroll_is_on_policy_and_whole() -> None:
    """The learner's pass over an unroll gives the worker's log-probabilities, also when episodes began inside it."""
    torch.manual_seed(0)
    worker = make_worker(Config(**CART, seed=3), CPU)
    first, second = worker.collect(), worker.collect()
    assert first.steps.ended.any()
    for data in (first, second):
        obs = torch.cat([data.steps.obs, data.last_obs[None]])
        start = torch.cat([data.steps.episode_start, data.steps.ended[-1:]])
        with torch.no_grad():
            out, _ = worker.agent.network.remember(worker.agent.network.embed(obs), start, data.state)
            log_pi, _ = worker.agent.network.heads(out[:-1])
        log_prob = log_pi.gather(-1, data.steps.action[..., None]).squeeze(-1)
        torch.testing.assert_close(log_prob, data.log_prob)
    assert torch.equal(second.steps.obs[0], first.last_obs)
    assert torch.equal(second.steps.episode_start[0], first.steps.ended[-1])
    assert worker.agent.update(second)["rho"].item() == pytest.approx(1.0, rel=1e-5)


def test_an_episode_that_cannot_be_replayed_begins_without_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("critex.envs.vector.HISTORY", 6)
    cfg = Config(**CART | {"env": "MountainCar-v0", "unroll": 8})
    saved, fresh = make_worker(cfg, CPU), make_worker(cfg, CPU)
    saved.collect()
    fresh.agent.network.load_state_dict(saved.agent.network.state_dict())
    with pytest.warns(UserWarning, match="cannot be replayed"):
        fresh.load_state_dict(saved.state_dict())
    assert fresh.agent.update(fresh.collect())["rho"].item() == pytest.approx(1.0, rel=1e-6)


def test_the_bonus_is_that_of_the_trunk_below_the_lstm() -> None:
    """Episodic, λ = 0.1, nothing for the first step: q = ψᵀ(λI + Σψψᵀ)⁻¹ψ of ψ = [φ(s); onehot(a)]."""
    options = EllipticalConfig(
        scope="episodic", strategy="ucb_squared", ridge=0.1, zero_first=True, scaling="none"
    )
    torch.manual_seed(0)
    worker = make_worker(Config(**CART, explorer="cae", bonus=options), CPU)
    steps = worker.collect().steps
    with torch.no_grad():
        phi = worker.agent.network.embed(steps.obs)
    psi = torch.cat([phi, torch.nn.functional.one_hot(steps.action, 2)], dim=-1).double()
    for n in range(3):
        for t in range(30):
            if steps.episode_start[t, n]:
                gram = 0.1 * torch.eye(18, dtype=torch.float64)
            x = psi[t, n]
            wanted = 0.0 if steps.episode_start[t, n] else (x @ torch.linalg.solve(gram, x)).item()
            assert steps.bonus[t, n].item() == pytest.approx(wanted, rel=1e-6)
            gram += torch.outer(x, x)


def test_the_policy_lag_counts_the_updates_since_the_policy_acted() -> None:
    agent = make()
    data = unroll(agent)
    data.version = 2
    agent.updates = 2
    assert [agent.update(data)["policy_lag"] for _ in range(3)] == [0, 1, 2]


def test_rewards_are_reported_without_the_bonus(train: Callable[..., Path]) -> None:
    path = train("impala", explorer="cae", alpha=100.0, steps=900, log_every=1, **CART)
    episodes = [line for line in metrics(path) if line["kind"] == "episode"]
    assert episodes and all(line["return"] == line["length"] for line in episodes)
    lines = [line for line in metrics(path) if line["kind"] == "train"]
    assert all(line["policy_lag"] == 0 and line["bonus"] > 0 for line in lines)


# --- options ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bonus_in": "value"}, "impala takes bonus_in=reward"),
        ({"steps": 100}, "less than one unroll"),
        ({"ray_address": "auto"}, "--workers"),
        ({"unroll": 0}, "unroll is 0"),
        ({"hidden": (0,)}, "hidden"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Config(**options)


def test_continuous_actions_are_refused() -> None:
    with pytest.raises(UserError, match="impala needs discrete actions"):
        IMPALA(Config(), OBS, gym.spaces.Box(-1, 1, (2,)), CPU)  # type: ignore[arg-type]


# --- learning ---


class Recall(gym.Env[Any, Any]):
    """See one of two cues, then nothing; the action of the third step must name it."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cue, self.time = int(self.np_random.integers(2)), 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == 3
        return self._seen(), float(over and action == self.cue), over, False, {}

    def _seen(self) -> Any:
        seen = np.zeros(3, np.float32)
        seen[2 if self.time else self.cue] = 1
        return seen


gym.register("ImpalaRecall-v0", Recall)


@pytest.mark.parametrize("explorer", ["none", "cae_plus"])
def test_learns_what_it_must_remember(train: Callable[..., Path], explorer: str) -> None:
    options = {"unroll": 12, "num_envs": 8, "learning_rate": 3e-3, "hidden": (16,), "entropy_coef": 0.01}
    path = train(
        "impala",
        env="ImpalaRecall-v0",
        explorer=explorer,
        alpha=0.01,
        steps=14_400,
        eval_every=14_400,
        eval_episodes=40,
        **options,
    )
    returns = [line["return"] for line in metrics(path) if line["kind"] == "episode"]
    assert np.mean(returns[:200]) < 0.65 and np.mean(returns[-500:]) > 0.9
    assert metrics(path)[-1]["return"] == 1.0  # the policy that is evaluated remembers, too


def test_an_evaluation_forgets_with_each_episode() -> None:
    """Ten envs, 25 episodes: without a restart the state of the last episode would leak into the next."""
    starts = []

    class Probe:
        def __call__(self, obs: Any) -> torch.Tensor:
            return torch.zeros(len(obs), dtype=torch.int64)

        def restart(self, ended: torch.Tensor) -> None:
            starts.append(ended)

    from functools import partial

    from critex.envs import Envs

    evaluate(Probe(), partial(Envs, "ImpalaRecall-v0"), 25, 0)
    assert [bool(ended.all()) for ended in starts] == [False, False, True] * 3


# --- golden numbers and resume ---


def test_golden() -> None:
    """Fifty updates on stored synthetic unrolls in float64: a change of results does not go unseen."""
    torch.set_default_dtype(torch.float64)
    try:
        bonus = CAEPlusConfig(u_dim=4, hidden=8, scope="episodic", scaling="batch")
        agent = make(explorer="cae_plus", bonus=bonus, alpha=0.3, learning_rate=3e-3)
        losses, bonuses = [], []
        for i in range(50):
            data = unroll(agent, seed=i, dtype=torch.float64)
            data.steps.bonus = agent.explorer.bonus_rollout(data.steps)
            bonuses.append(data.steps.bonus.mean().item())
            losses.append(agent.update(data))
        data = unroll(agent, seed=99, dtype=torch.float64)
        phi = agent.network.embed(data.steps.obs)
        out, state = agent.network.remember(phi, data.steps.episode_start, data.state)
        log_pi, value = agent.network.heads(out)
        got = [
            losses[0]["loss"].item(), losses[-1]["loss"].item(), sum(x["loss_value"].item() for x in losses),
            bonuses[0], bonuses[-1], log_pi.sum().item(), value.sum().item(), state.square().sum().item(),
        ]  # fmt: skip
    finally:
        torch.set_default_dtype(torch.float32)
    if os.environ.get("CRITEX_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(got, indent=1) + "\n")
    assert got == pytest.approx(json.loads(GOLDEN.read_text()), rel=1e-6)


def test_anneal_lowers_both_learning_rates(
    train: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, update = [], IMPALA.update

    def watched(self: IMPALA, unroll: Any) -> Any:
        rates.append([o.param_groups[0]["lr"] for o in (self.optimizer, self.explorer_optimizer)])
        return update(self, unroll)

    monkeypatch.setattr(IMPALA, "update", watched)
    options = {"explorer": "cae_plus", "unroll": 5, "num_envs": 2, "hidden": (8,), "learning_rate": 0.1}
    train("impala", env="CartPole-v1", steps=40, anneal=True, **options)
    assert rates == [pytest.approx([rate] * 2) for rate in (0.1, 0.075, 0.05, 0.025)]


@pytest.mark.parametrize(
    ("env", "explorer", "bonus"),
    [
        ("CartPole-v1", "none", None),
        ("CartPole-v1", "cae", EllipticalConfig(strategy="thompson")),
        ("CartPole-v1", "e3b", E3BConfig(scaling="batch", width=8)),
        ("MiniHack-MultiRoom-N2-v0", "cae_plus", CAEPlusConfig(scope="episodic", scaling="batch")),
    ],
)
def test_resume_is_exact(train: Callable[..., Path], env: str, explorer: str, bonus: Any) -> None:
    """Killed in the middle of an update, after a checkpoint in the middle of every env's episode."""
    if env.startswith("MiniHack"):
        pytest.importorskip("minihack")
    options: dict[str, Any] = {
        "env": env, "explorer": explorer, "bonus": bonus, "steps": 6 * 57, "unroll": 19, "num_envs": 3, "hidden": (8,),
        "log_every": 1, "checkpoint_every": 1, "eval_every": 150, "eval_episodes": 2, "anneal": True,
    }  # fmt: skip
    if env.startswith("MiniHack"):
        options |= {"eval_every": 0, "steps": 5 * 57}
    check_resume(train, "impala", **options)
