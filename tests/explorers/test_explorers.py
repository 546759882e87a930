"""Explorers against closed forms, step by step against rollouts, and their place in the protocol."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import Tensor, nn

from critex.bonus import Gram
from critex.data import Replay, Transition
from critex.embedding import Embedding
from critex.errors import UserError
from critex.explorers import (
    EXPLORERS,
    CAEExplorer,
    CAEPlusConfig,
    CAEPlusExplorer,
    Elliptical,
    EllipticalConfig,
    ExplorationConfig,
    NovelDConfig,
    Setting,
    batch_bonus,
    clip_reward,
    make_explorer,
    value_bonus,
)

D, A, N = 4, 3, 2


def reshaped(batch: Transition, explorer: Any, cfg: ExplorationConfig) -> Tensor:
    """r̃ as the algorithms compute it."""
    return clip_reward(batch.reward + cfg.alpha * batch_bonus(batch, explorer, cfg), cfg)


def setting(critic: Any = None, **keywords: Any) -> Setting:
    embedding = Embedding.of(critic or (lambda obs: obs), D, gym.spaces.Discrete(A), takes_action=False)
    return Setting(embedding, gym.spaces.Box(-1, 1, (D,)), **keywords)


def steps(t: int, n: int = N, seed: int = 0) -> Transition:
    """A random rollout [t, n] with episode ends in it."""
    rng = torch.Generator().manual_seed(seed)
    ends = torch.rand(t, n, generator=rng) < 0.2
    starts = torch.cat([torch.ones(1, n, dtype=torch.bool), ends[:-1]])
    return Transition(
        obs=torch.randn(t, n, D, generator=rng),
        action=torch.randint(A, (t, n), generator=rng),
        reward=torch.randn(t, n, generator=rng),
        next_obs=torch.randn(t, n, D, generator=rng),
        terminated=ends,
        truncated=torch.zeros_like(ends),
        episode_start=starts,
    )


def at(rollout: Transition, t: int) -> Transition:
    return rollout.map(lambda x: x[t])


def test_cae_is_the_formula() -> None:
    """Against an explicit inverse, envs in order, and numpy's standard deviation."""
    rollout = steps(30)
    explorer = CAEExplorer(EllipticalConfig(ridge=0.5), setting(num_envs=N))
    a = 0.5 * torch.eye(D + A, dtype=torch.float64)
    seen: list[float] = []
    for t in range(30):
        got = explorer.bonus(at(rollout, t))
        for i in range(N):
            one_hot = torch.nn.functional.one_hot(rollout.action[t, i], A)
            phi = torch.cat([rollout.obs[t, i], one_hot]).double()
            seen.append((phi @ torch.linalg.inv(a) @ phi).sqrt().item())
            a += torch.outer(phi, phi)
            std = torch.tensor(seen).std(correction=0).item()
            expected = seen[-1] / std if len(seen) > 1 else seen[-1]
            assert got[i].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["cae", "cae_plus"])
@pytest.mark.parametrize("scope", ["lifelong", "episodic"])
@pytest.mark.parametrize("scaling", ["welford", "none"])
@pytest.mark.parametrize("strategy", ["ucb", "ucb_squared"])
@pytest.mark.parametrize("n", [1, N])
def test_rollout_equals_steps(name: str, scope: str, scaling: str, strategy: str, n: int) -> None:
    rollout, cls = steps(40, n), EXPLORERS[name]
    torch.manual_seed(0)
    one = cls(cls.Config(scope=scope, scaling=scaling, strategy=strategy), setting(num_envs=n))
    two = cls(one.config, setting(num_envs=n))
    two.load_state_dict(one.state_dict())
    by_step = torch.stack([one.bonus(at(rollout, t)) for t in range(40)])
    torch.testing.assert_close(two.bonus_rollout(rollout), by_step, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scope", ["lifelong", "episodic"])
def test_block_is_one_gram_over_features_in_blocks(scope: str) -> None:
    """One memory per action gives what φ(s) in the block of its action gives in one matrix of A·d."""
    rollout = steps(30)
    block = CAEExplorer(EllipticalConfig(embedding="block", scaling="none", scope=scope), setting(num_envs=N))
    one_hot = torch.nn.functional.one_hot(rollout.action, A)
    features = (one_hot.unsqueeze(-1) * rollout.obs.unsqueeze(-2)).flatten(-2)  # [T, N, A·d]
    dense = Gram(A * D, memories=N if scope == "episodic" else 1)
    expected = dense.observe_rollout(features, rollout.episode_start if scope == "episodic" else None).sqrt()
    torch.testing.assert_close(block.bonus_rollout(rollout), expected, rtol=1e-9, atol=0.0)
    if scope == "lifelong":
        every = torch.eye(A).repeat_interleave(D, 1) * rollout.obs[0].repeat(1, A).unsqueeze(1)
        torch.testing.assert_close(block.measure_actions(rollout.obs[0])[0], dense.quadratic(every).sqrt())


def test_zero_first() -> None:
    rollout = steps(20)
    explorer = CAEExplorer(
        EllipticalConfig(zero_first=True, scope="episodic", scaling="none"), setting(num_envs=N)
    )
    plain = CAEExplorer(EllipticalConfig(scope="episodic", scaling="none"), setting(num_envs=N))
    got, all_paid = explorer.bonus_rollout(rollout), plain.bonus_rollout(rollout)
    assert (got[rollout.episode_start] == 0).all()
    torch.testing.assert_close(got[~rollout.episode_start], all_paid[~rollout.episode_start])


def test_the_cost_survives_a_resume() -> None:
    one, two = (CAEExplorer(EllipticalConfig(), setting(num_envs=N)) for _ in range(2))
    one.bonus_rollout(steps(20))
    two.load_state_dict(one.state_dict())
    assert two.card()["bonus_us_per_step"] == one.card()["bonus_us_per_step"] > 0
    two.bonus_rollout(steps(20))
    assert two._cost[1] == 2 * one._cost[1]


def test_measure_changes_nothing() -> None:
    rollout = steps(20)
    for strategy in ("ucb", "thompson"):
        explorer = CAEExplorer(EllipticalConfig(strategy=strategy), setting(num_envs=N))
        explorer.bonus_rollout(rollout)
        explorer.measure_actions(rollout.obs[0])  # Thompson draws Δθ for the episode here
        before = deepcopy(explorer.state_dict())
        first = explorer.measure(rollout.obs[0], rollout.action[0])
        second = explorer.measure(rollout.obs[0], rollout.action[0])
        assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
        after = explorer.state_dict()
        extra, extra_before = after.pop("_extra_state"), before.pop("_extra_state")
        assert torch.equal(extra["generator"], extra_before["generator"])
        assert all(torch.equal(after[k], v) for k, v in before.items() if isinstance(v, Tensor))


def test_thompson_shares_one_draw_over_actions_for_an_episode() -> None:
    rollout = steps(10)
    explorer = CAEExplorer(EllipticalConfig(strategy="thompson", scaling="none"), setting())
    obs = rollout.obs[0]
    raw, _ = explorer.measure_actions(obs)
    assert explorer._delta is not None
    phi = explorer.phi_each_action(obs).double()
    torch.testing.assert_close(raw, phi @ explorer._delta[0])
    step = at(steps(1, n=1), 0)
    step.terminated[:] = False
    explorer.bonus(step)
    torch.testing.assert_close(explorer.measure_actions(obs)[0], raw)  # held in the episode, whatever A does
    step.terminated[:] = True
    explorer.bonus(step)
    assert not torch.equal(explorer.measure_actions(obs)[0], raw)


@pytest.mark.parametrize(("scope", "hold"), [("episodic", False), ("lifelong", True)])
def test_thompson_as_a_reward_has_the_law_of_its_direction(scope: Any, hold: bool) -> None:
    """Δθᵀφ ~ N(0, φᵀA⁻¹φ): fresh for each transition, or held, with another one for each env."""
    cfg = EllipticalConfig(strategy="thompson", scaling="none", ridge=2.0, scope=scope, thompson_hold=hold)
    explorer = CAEExplorer(cfg, setting(num_envs=4000))
    step = at(steps(1, n=1), 0).map(lambda x: x.expand(4000, *x.shape[1:]))
    b = explorer.bonus(step)
    phi = explorer.phi(step.obs[:1], step.action[:1], None).double()
    assert b.mean().abs() < 4 * b.std() / 4000**0.5
    assert b.var().item() == pytest.approx((phi.square().sum() / 2.0).item(), rel=0.1)


@pytest.mark.parametrize("scope", ["lifelong", "episodic"])
def test_thompson_held_for_an_episode_is_one_linear_reward(scope: str) -> None:
    """β = Δθᵀφ with the same Δθ within an episode of an env, another one in the next; rollouts equal steps."""
    cfg = EllipticalConfig(strategy="thompson", thompson_hold=True, scaling="none", scope=scope)
    explorer, twin = (CAEExplorer(cfg, setting(num_envs=N)) for _ in range(2))
    rollout = steps(30)
    rollout.episode_start = torch.zeros(30, N, dtype=torch.bool)
    rollout.episode_start[[0, 15]] = True
    bonus = torch.stack([explorer.bonus(at(rollout, t)) for t in range(30)])
    torch.testing.assert_close(twin.bonus_rollout(rollout), bonus)
    phi = explorer.phi(rollout.obs, rollout.action, None).double()
    first, second = (
        torch.linalg.lstsq(phi[half, 0], bonus[half, 0, None]).solution[:, 0]
        for half in (slice(0, 15), slice(15, 30))
    )  # 15 steps tell the D + A dimensions of Δθ
    torch.testing.assert_close(phi[:15, 0] @ first, bonus[:15, 0])
    torch.testing.assert_close(phi[15:, 0] @ second, bonus[15:, 0])
    assert (first - second).norm() > 0.1
    with pytest.raises(UserError, match="thompson_hold is for strategy=thompson"):
        EllipticalConfig(thompson_hold=True)


def test_rebuild_embeds_many_rows_part_by_part() -> None:
    sizes = []

    def body(obs: Tensor) -> Tensor:
        sizes.append(len(obs))
        return obs

    explorer = CAEExplorer(EllipticalConfig(rebuild_every=1, scaling="none"), setting(body))
    rollout, replay = steps(1, n=2100), Replay(2100)
    replay.add(at(rollout, 0))
    explorer._steps = 1
    explorer.refresh(replay)
    assert sizes == [1000, 1000, 100]
    phi = explorer.phi(rollout.obs[0], rollout.action[0], None).double()
    wanted = torch.eye(D + A, dtype=torch.float64) + phi.T @ phi
    torch.testing.assert_close(explorer.gram.matrix()[0], wanted)


def test_rebuild_uses_todays_features() -> None:
    body = nn.Linear(D, D)
    explorer = CAEExplorer(EllipticalConfig(rebuild_every=8), setting(body.forward))
    replay = Replay(100)
    rollout = steps(8, n=1)
    for t in range(8):
        explorer.bonus(at(rollout, t))
        replay.add(at(rollout, t))
    nn.init.zeros_(body.weight)
    explorer.refresh(replay)
    with torch.no_grad():
        phi = explorer.phi(rollout.obs[:, 0], rollout.action[:, 0], None).double()
        expected = torch.linalg.inv(torch.eye(D + A, dtype=torch.float64) + phi.T @ phi)
        probe = torch.randn(5, D + A, dtype=torch.float64)
        torch.testing.assert_close(explorer.gram.quadratic(probe), ((probe @ expected) * probe).sum(-1))


@pytest.mark.parametrize("rows", [8, 5])
def test_rebuild_of_each_block(rows: int) -> None:
    """Every action's memory holds its own of the newest rows, as if they had just been seen."""
    rollout = steps(8, n=1)
    options = EllipticalConfig(embedding="block", scaling="none", rebuild_every=1, rebuild_rows=rows)
    explorer, fresh = (CAEExplorer(options, setting()) for _ in range(2))
    replay = Replay(100)
    for t in range(8):
        replay.add(at(rollout, t))
        explorer.bonus(at(steps(8, n=1, seed=1), t))  # what a rebuild forgets
    for t in range(8 - rows, 8):
        fresh.bonus(at(rollout, t))
    explorer.refresh(replay)
    torch.testing.assert_close(explorer.gram.matrix(), fresh.gram.matrix(), rtol=1e-12, atol=1e-12)


def test_state_round_trip_is_exact() -> None:
    for name in EXPLORERS:
        cls = EXPLORERS[name]
        options = {"strategy": "thompson"} if issubclass(cls, Elliptical) else {}
        one, two = (cls(cls.Config(**options), setting(num_envs=N, seed=s)) for s in (0, 1))
        one.bonus_rollout(steps(10))
        two.load_state_dict(one.state_dict())
        more = steps(10, seed=1)
        assert torch.equal(one.bonus_rollout(more), two.bonus_rollout(more))
        assert one.metrics() == two.metrics()


class TestCAEPlus:
    def test_table_2_parameters(self) -> None:
        """U 1024→128 with bias, f̄ 256→256→11: 199,819 of the paper's table; 527,371 without U."""
        embedding = Embedding.of(lambda obs: obs, 1024, gym.spaces.Discrete(11), takes_action=False)
        for options, count in [
            ({"u_dim": 128}, 199_819),
            ({"u_dim": 256}, 396_555),
            ({"use_u": False}, 527_371),
        ]:
            explorer = CAEPlusExplorer(CAEPlusConfig(hidden=256, **options), Setting(embedding))
            assert explorer.card()["parameters_added"] == count

    def test_networks_are_where_the_critic_is_and_the_memory_on_the_cpu(self) -> None:
        explorer = CAEPlusExplorer(CAEPlusConfig(), setting(nn.Linear(D, D, device="meta").forward))
        assert {p.device.type for p in explorer.parameters()} == {"meta"}
        assert explorer.gram.device.type == "cpu"

    def test_default_u_is_a_quarter(self) -> None:
        embedding = Embedding.of(lambda obs: obs, 256, gym.spaces.Discrete(11), takes_action=False)
        explorer = CAEPlusExplorer(CAEPlusConfig(), Setting(embedding))
        assert explorer.U.out_features == 64 and explorer.gram.dim == 64 + 11

    def test_loss_is_uniform_entropy_at_uniform_logits(self) -> None:
        explorer = CAEPlusExplorer(CAEPlusConfig(), setting())
        nn.init.zeros_(explorer.inverse.head.weight)
        assert explorer.loss(steps(5).map(lambda x: x.flatten(0, 1))).item() == pytest.approx(
            torch.tensor(A).log()
        )

    def test_gaussian_loss_is_the_likelihood(self) -> None:
        space = gym.spaces.Box(-1, 1, (2,))
        explorer = CAEPlusExplorer(
            CAEPlusConfig(), Setting(Embedding.of(lambda obs: obs, D, space, takes_action=False))
        )
        nn.init.zeros_(explorer.inverse.head.weight)
        explorer.inverse.log_std.data = torch.tensor([0.3, -0.2])
        batch = steps(5).map(lambda x: x.flatten(0, 1))
        batch.action = torch.rand(10, 2) * 2 - 1
        law = torch.distributions.Normal(torch.zeros(2), explorer.inverse.log_std.exp())
        assert explorer.loss(batch).item() == pytest.approx(
            -law.log_prob(batch.action).sum(-1).mean().item(), rel=1e-5
        )

    @pytest.mark.parametrize("which", ["executed", "sampled"])
    def test_continuous_actions_as_executed_or_as_sampled(self, which: str) -> None:
        space = gym.spaces.Box(-1, 1, (2,))
        where = Setting(Embedding.of(lambda obs: obs, D, space, takes_action=False))
        explorer = CAEPlusExplorer(CAEPlusConfig(inverse_action=which), where)
        batch = steps(5).map(lambda x: x.flatten(0, 1))
        beyond = replace(batch, action=torch.full((10, 2), 3.0))
        clipped = replace(batch, action=torch.ones(10, 2))
        assert torch.equal(explorer.loss(beyond), explorer.loss(clipped)) == (which == "executed")

    def test_sigma_has_a_floor_and_can_rise_from_it(self) -> None:
        """In units of half the range, 2: σ ≥ 0.2; and a residual above it still has a gradient that raises σ."""
        space = gym.spaces.Box(-2, 2, (1,))
        where = Setting(Embedding.of(lambda obs: obs, D, space, takes_action=False))
        explorer = CAEPlusExplorer(CAEPlusConfig(), where)
        explorer.inverse.log_std.data.fill_(-9.0)
        nn.init.zeros_(explorer.inverse.head.weight)
        batch = replace(steps(5).map(lambda x: x.flatten(0, 1)), action=torch.ones(10, 1))
        explorer.loss(batch).backward()
        assert explorer.inverse.log_std.exp().item() == pytest.approx(0.2)
        assert explorer.inverse.log_std.grad.item() == pytest.approx(1 - (1 / 0.2) ** 2, rel=1e-5)

    def test_single_numbers_as_actions_are_no_matrix_of_differences(self) -> None:
        space = gym.spaces.Box(-1, 1, ())
        explorer = CAEPlusExplorer(
            CAEPlusConfig(), Setting(Embedding.of(lambda obs: obs, D, space, takes_action=False))
        )
        batch = steps(5).map(lambda x: x.flatten(0, 1))
        column = replace(batch, action=torch.randn(10, 1))
        assert torch.equal(explorer.loss(replace(batch, action=column.action[:, 0])), explorer.loss(column))

    @pytest.mark.parametrize("in_bonus", [True, False])
    def test_bias_of_u(self, in_bonus: bool) -> None:
        explorer = CAEPlusExplorer(CAEPlusConfig(u_dim=2, bias_in_bonus=in_bonus), setting())
        nn.init.ones_(explorer.U.bias)
        obs = torch.zeros(1, D)
        assert explorer.phi(obs, torch.tensor([0]), None)[0, :2].tolist() == [float(in_bonus)] * 2

    def test_pairs_across_episode_ends(self) -> None:
        rollout = steps(20)
        explorer = CAEPlusExplorer(CAEPlusConfig(cross_episode_ends=True), setting())
        follow = replace(rollout, next_obs=torch.cat([rollout.obs[1:], rollout.next_obs[-1:]]))
        truth = CAEPlusExplorer(CAEPlusConfig(), setting())
        truth.load_state_dict(explorer.state_dict())
        assert torch.equal(explorer.loss(explorer.prepare(rollout)), truth.loss(follow))
        assert not torch.equal(explorer.loss(explorer.prepare(rollout)), truth.loss(truth.prepare(rollout)))

    def test_learns_the_action(self) -> None:
        """s' = s + e_a: the inverse dynamics can know the action from the difference."""
        torch.manual_seed(0)
        explorer = CAEPlusExplorer(CAEPlusConfig(u_dim=D), setting())
        optimizer = torch.optim.Adam(explorer.parameters(), lr=1e-2)
        for _ in range(300):
            batch = steps(16, seed=int(torch.randint(10**6, ()))).map(lambda x: x.flatten(0, 1))
            batch.next_obs = batch.obs + torch.eye(D)[batch.action]
            loss = explorer.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss.item() < 0.3  # uniform would be log 3 = 1.1


def test_mixing() -> None:
    batch = steps(10).map(lambda x: x.flatten(0, 1))
    batch.bonus = torch.arange(20.0)
    explorer = CAEExplorer(EllipticalConfig(), setting())
    mixed = reshaped(batch, explorer, ExplorationConfig(alpha=0.5))
    torch.testing.assert_close(mixed, batch.reward + 0.5 * torch.arange(20.0))
    assert reshaped(batch, explorer, ExplorationConfig(alpha=9.0, reward_clip=1.0)).abs().max() == 1
    anew = reshaped(batch, explorer, ExplorationConfig(alpha=0.5, recompute=True))
    expected = explorer.measure(batch.obs, batch.action)[1]
    torch.testing.assert_close(anew, batch.reward + 0.5 * expected.float())
    value = ExplorationConfig(alpha=0.5, bonus_in="value")
    assert torch.equal(reshaped(batch, explorer, value), batch.reward)
    torch.testing.assert_close(
        value_bonus(batch.obs, explorer, value), explorer.measure_actions(batch.obs)[0].float()
    )
    assert value_bonus(batch.obs, explorer, ExplorationConfig()) == 0


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        (ExplorationConfig(explorer="cea"), "did you mean cae"),
        (
            ExplorationConfig(explorer="cae", bonus=EllipticalConfig(scope="episodic"), recompute=True),
            "lifelong",
        ),
        (
            ExplorationConfig(explorer="cae", bonus=EllipticalConfig(scope="episodic"), bonus_in="value"),
            "lifelong",
        ),
        (ExplorationConfig(explorer="cae", bonus=EllipticalConfig(scaling="batch")), "welford"),
        (
            ExplorationConfig(
                explorer="cae", bonus=EllipticalConfig(embedding="next_state"), bonus_in="value"
            ),
            "embedding block",
        ),
        (ExplorationConfig(explorer="cae", bonus_in="value", recompute=True), "always recomputes"),
        (ExplorationConfig(explorer="cae", scale_value_bonus=True), "bonus_in=value"),
        (
            ExplorationConfig(explorer="cae", bonus=EllipticalConfig(zero_first=True), bonus_in="value"),
            "bonus_in=value cannot tell which step begins an episode",
        ),
        (
            ExplorationConfig(explorer="noveld", bonus=NovelDConfig(first_visit_only=False), recompute=True),
            "cannot compute a stored bonus again",
        ),
        (
            ExplorationConfig(explorer="cae", bonus=EllipticalConfig(zero_first=True), recompute=True),
            "recompute cannot tell which step begins an episode",
        ),
        (
            ExplorationConfig(
                explorer="cae",
                bonus=EllipticalConfig(strategy="thompson", thompson_hold=True, scaling="none"),
                bonus_in="value",
            ),
            "bonus_in=value draws its own Δθ; use --bonus.no-thompson-hold",
        ),
        (ExplorationConfig(explorer="counts", recompute=True), "use --bonus.key obs"),
        (ExplorationConfig(explorer="rnd+counts", recompute=True), "use --bonus.second.key obs"),
        (
            ExplorationConfig(explorer="cae", bonus=EllipticalConfig(embedding="state_action")),
            "takes only the state",
        ),
        (
            ExplorationConfig(explorer="cae", bonus=EllipticalConfig(scaling="batch")),
            "use --bonus.scaling welford, with another --alpha",
        ),
        (
            ExplorationConfig(explorer="cae_plus", bonus=CAEPlusConfig(cross_episode_ends=True)),
            "use --bonus.no-cross-episode-ends",
        ),
    ],
)
def test_what_does_not_go_together(cfg: ExplorationConfig, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_explorer(cfg, setting())


def test_a_bonus_is_where_the_reward_is() -> None:
    """The Gram memory stays on the CPU when the networks are on a GPU."""
    batch, explorer = steps(3), make_explorer(ExplorationConfig(explorer="cae"), setting())
    there = replace(batch, reward=batch.reward.to("meta"))
    assert explorer.bonus_rollout(there).device == there.reward.device


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"u_dim": 0}, "u_dim is 0"),
        ({"u_dim": 4, "use_u": False}, "removes U"),
        ({"warmup": 3, "scaling": "none"}, "scaling=welford"),
        ({"phi_norm": 0.0}, "phi_norm is 0.0; it must be above 0"),
        ({"rebuild_every": -1}, "rebuild_every is -1"),
    ],
)
def test_options_that_would_do_nothing_or_harm(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CAEPlusConfig(**options)


def test_no_gradient_reaches_the_agent() -> None:
    body = nn.Linear(D, D)
    for name in EXPLORERS:
        explorer = make_explorer(ExplorationConfig(explorer=name), setting(body.forward, num_envs=N))
        assert not explorer.bonus(at(steps(1), 0)).requires_grad
        assert all(p is not q for p in explorer.parameters() for q in body.parameters())
    assert body.weight.grad is None


def test_the_explorers_draws_are_not_the_agents() -> None:
    """Two generators with one seed would give Thompson's noise and the agent's the same numbers."""
    place = setting(seed=3)
    explorer = CAEExplorer(EllipticalConfig(strategy="thompson"), place)
    agent = torch.Generator().manual_seed(3)
    ours = torch.randn(5, generator=explorer._generator)
    assert not torch.equal(ours, torch.randn(5, generator=agent))
    again = CAEExplorer(EllipticalConfig(strategy="thompson"), place)
    assert torch.equal(ours, torch.randn(5, generator=again._generator))
