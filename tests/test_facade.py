"""critex.CAE and critex.CAEPlus in a hand-written loop."""

from __future__ import annotations

import io
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import critex
from critex.explorers import _alpha


def embed(obs: Tensor, action: Tensor) -> Tensor:
    return torch.cat([obs, action], -1)


OBS, ACTION = torch.tensor([[3.0, 0.0]]), torch.tensor([[4.0]])


def test_first_bonuses_in_closed_form() -> None:
    explorer = critex.CAE(embed, alpha=2.0, ridge=1.0, scaling="none")
    b = 25.0  # φᵀφ / λ, then b/(1+b), b/(1+2b), …
    for n in range(4):
        assert explorer(OBS, ACTION).item() == pytest.approx(2 * (b / (1 + n * b)) ** 0.5, rel=1e-6)


def test_ridge_and_squared() -> None:
    explorer = critex.CAE(embed, alpha=1.0, ridge=0.1, strategy="ucb_squared", scaling="none")
    unit = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0]])
    got = [explorer(*unit).item() for _ in range(3)]
    assert got == pytest.approx([10, 1 / 1.1, 1 / 2.1])


def test_scaling_divides_by_the_running_standard_deviation() -> None:
    raw = critex.CAE(embed, scaling="none")
    scaled = critex.CAE(embed, scaling="welford")
    rng = torch.Generator().manual_seed(0)
    seen: list[float] = []
    for _ in range(50):
        obs, action = torch.randn(1, 2, generator=rng), torch.randn(1, 1, generator=rng)
        seen.append(raw(obs, action).item())
        expected = seen[-1] / np.std(seen) if len(seen) > 1 else seen[-1]
        assert scaled(obs, action).item() == pytest.approx(expected, rel=1e-6)


def test_arrays_in_arrays_out() -> None:
    explorer = critex.CAE(embed)
    out = explorer(np.ones((1, 2)), np.ones((1, 1), dtype=np.float32))
    assert isinstance(out, np.ndarray) and out.shape == (1,)
    assert isinstance(explorer(OBS, ACTION), Tensor)
    assert isinstance(explorer([[1.0, 2.0]], [[3.0]]), np.ndarray)


def test_observations_of_several_parts() -> None:
    explorer = critex.CAE(
        lambda obs: obs["a"]["b"], embedding="state_and_action", num_actions=3, scaling="none", num_envs=2
    )
    out = explorer(
        {"a": {"b": np.array([[3.0, 0], [0, 3]])}, "c": np.zeros(2)}, np.array([1, 2], dtype=np.int32)
    )
    assert out.tolist() == pytest.approx([10**0.5, 10**0.5])  # orthogonal, so the second finds A as new


@pytest.mark.parametrize("form", ["state_and_action", "block"])
def test_integer_actions_as_a_column(form: str) -> None:
    column, flat = (
        critex.CAE(lambda obs: obs, embedding=form, num_actions=3, num_envs=2, scaling="none")
        for _ in range(2)
    )
    obs, actions = torch.randn(2, 4), torch.tensor([2, 0])
    assert torch.equal(column(obs, actions[:, None]), flat(obs, actions))


def test_single_numbers_as_continuous_actions() -> None:
    explorer = critex.CAE(lambda obs: obs, embedding="state_and_action", scaling="none", dim=1)
    assert explorer(torch.tensor([[3.0]]), torch.tensor([4.0])).item() == pytest.approx(5)


def test_episodic_memories_are_one_per_env() -> None:
    explorer = critex.CAE(embed, scope="episodic", scaling="none", num_envs=2)
    obs, action = OBS.repeat(2, 1), ACTION.repeat(2, 1)
    start = lambda *flags: torch.tensor(flags)  # noqa: E731
    assert explorer(obs, action, episode_start=start(True, True)).tolist() == pytest.approx([5, 5])
    second = (25 / 26) ** 0.5
    assert explorer(obs, action, episode_start=start(True, False)).tolist() == pytest.approx([5, second])


def test_next_state_form() -> None:
    explorer = critex.CAE(lambda obs: obs, embedding="next_state", scaling="none")
    assert explorer(torch.zeros(1, 2), torch.zeros(1), next_obs=OBS).item() == pytest.approx(3)


def test_state_and_discrete_action() -> None:
    explorer = critex.CAE(lambda obs: obs, embedding="state_and_action", num_actions=3, scaling="none")
    assert explorer(OBS, torch.tensor([2])).item() == pytest.approx(10**0.5)


def test_cae_owns_no_parameter_and_does_not_hold_the_critic() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    explorer = critex.CAE(critex.last_hidden(net), embedding="next_state")
    explorer(torch.zeros(1, 3), torch.zeros(1), next_obs=torch.randn(1, 3))
    assert list(explorer.parameters()) == []
    assert not any(m is net for m in explorer.modules())


def test_state_round_trip_before_the_first_call() -> None:
    one = critex.CAE(embed, strategy="thompson", seed=5)
    for _ in range(5):
        one(torch.randn(1, 2), torch.randn(1, 1))
    two = critex.CAE(embed, strategy="thompson", seed=9)
    two.load_state_dict(one.state_dict())
    for _ in range(5):
        obs, action = torch.randn(1, 2), torch.randn(1, 1)
        assert one(obs, action).item() == two(obs, action).item()


def test_presets_and_precedence() -> None:
    official = critex.CAE(embed, preset="official", scaling="none").config
    assert (official.strategy, official.scope, official.ridge) == ("ucb_squared", "episodic", 0.1)
    assert critex.CAE(embed, preset="official", scaling="none", ridge=0.5).config.ridge == 0.5
    assert critex.CAE(embed).config.strategy == "ucb"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"ridge": 0.0}, "ridge is 0.0; it must be above 0"),
        ({"strategy": "ubc"}, "did you mean ucb"),
        ({"scope": "forever"}, "unknown scope"),
        ({"scaling": "welfrod"}, "did you mean welford"),
        ({"preset": "papr"}, "did you mean paper"),
        ({"ridgee": 1.0}, "did you mean ridge"),
        ({"warmup": -1}, "warmup is -1"),
        ({"ridge": float("inf")}, "ridge is inf; it must be a finite number"),
        ({"preset": "official"}, "give scaling='welford'"),
        ({"rebuild_every": 10}, "replay buffer"),
    ],
)
def test_bad_keywords(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        critex.CAE(embed, **keywords)


def state(obs: Tensor) -> Tensor:
    return obs


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match="2 environments; this explorer has 1"):
        critex.CAE(embed, num_envs=1)(OBS.repeat(2, 1), ACTION.repeat(2, 1))
    with pytest.raises(ValueError, match=r"got \[\]; for a single environment pass obs\[None\]"):
        critex.CAE(state, embedding="block", num_actions=3)(np.zeros(2), np.int64(1))
    with pytest.raises(ValueError, match=r"pass obs\[:, None\] and actions\[:, None\]"):
        critex.CAE(state, num_actions=3).rollout(torch.zeros(5, 2), torch.zeros(5, dtype=torch.long))
    with pytest.raises(ValueError, match="the critic has no forward; pass the part"):
        critex.CAE(nn.ModuleDict({"value": nn.Linear(2, 1)}), num_actions=3)
    with pytest.raises(ValueError, match=r"observations must be \[N, …\]"):
        critex.CAE(embed)(torch.zeros(3), torch.zeros(2, 1))
    with pytest.raises(ValueError, match="need num_actions="):
        critex.CAE(state)(OBS, torch.tensor([1]))
    with pytest.raises(ValueError, match="integers from 0 to 2"):
        critex.CAE(state, num_actions=3)(OBS, torch.tensor([3]))
    with pytest.raises(ValueError, match="integers from 0 to 2"):
        critex.CAE(state, num_actions=3)(OBS, torch.tensor([0.5]))
    with pytest.raises(ValueError, match="dim=4"):
        critex.CAE(embed, dim=4)(OBS, ACTION)
    with pytest.raises(ValueError, match="ended="):
        critex.CAE(embed, scope="episodic")(OBS, ACTION)
    with pytest.raises(ValueError, match="not both"):
        critex.CAE(embed)(OBS, ACTION, ended=[False], episode_start=[False])
    with pytest.raises(ValueError, match=r"ended must have the shape of actions, \[1\]; got \[2\]"):
        critex.CAE(embed)(OBS, ACTION, ended=[False, True])
    with pytest.raises(ValueError, match="next_obs="):
        critex.CAE(state, embedding="next_state")(OBS, ACTION)
    with pytest.raises(ValueError, match=r"\[N, d\]"):
        critex.CAE(lambda obs, action: obs[0])(OBS, ACTION)


def test_a_mistaken_first_call_does_not_decide_the_number_of_envs() -> None:
    explorer = critex.CAE(embed)
    with pytest.raises(ValueError, match="observations must be"):
        explorer(OBS[0], torch.zeros(3))  # one environment, without its axis
    explorer(OBS, ACTION)


@pytest.mark.parametrize("rows", [4, 6])
@pytest.mark.parametrize("name", ["ended", "episode_start"])
def test_flags_of_a_rollout_of_another_length(name: str, rows: int) -> None:
    """A rollout of five steps: too few flags ended in an IndexError, and of too many the last were ignored."""
    obs, action, flags = OBS.expand(5, 1, 2), ACTION.expand(5, 1, 1), torch.zeros(rows, 1)
    with pytest.raises(
        ValueError, match=rf"{name} must have the shape of actions, \[5, 1\]; got \[{rows}, 1\]"
    ):
        critex.CAE(embed).rollout(obs, action, **{name: flags})


@pytest.mark.parametrize("alpha", [float("nan"), -1.0, float("inf")])
def test_bad_alpha(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha is"):
        critex.CAE(embed, alpha)


class TestAutoAlpha:
    """α from the scales of rewards and bonuses."""

    @pytest.fixture(autouse=True)
    def no_warmup(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_alpha, "WARMUP", 0)

    def steps(self, t: int = 30, n: int = 2) -> tuple[Tensor, ...]:
        """Observations, actions, ends of episodes and rewards, [T, N, …]."""
        rng = torch.Generator().manual_seed(0)
        obs, action, reward = (torch.randn(t, n, d, generator=rng) for d in (2, 1, 1))
        return obs, action, torch.rand(t, n, generator=rng) < 0.2, 5 * reward.squeeze(-1)

    def test_every_step_has_the_alpha_of_the_rewards_so_far(self) -> None:
        raw, auto = critex.CAE(embed), critex.CAE(embed, "auto", gamma=0.9)
        rule, start = _alpha.Alpha("auto", 0.9), torch.ones(2, dtype=torch.bool)
        for obs, action, ended, reward in zip(*self.steps(), strict=True):
            bonus = raw(obs, action, ended=ended)
            alpha = rule.observe(reward, bonus, start)
            start = ended
            paid = auto(obs, action, ended=ended, rewards=reward)
            torch.testing.assert_close(paid, alpha * bonus, rtol=1e-5, atol=0)
            assert auto.alpha == pytest.approx(alpha, rel=1e-5)

    @pytest.mark.parametrize("mode", ["next_step", "same_step"])
    def test_a_rollout_is_its_steps(self, mode: Any) -> None:
        obs, action, ended, reward = self.steps()
        one, many = (critex.CAE(embed, "auto", autoreset=mode) for _ in range(2))
        paid = [one(o, a, ended=e, rewards=r) for o, a, e, r in zip(obs, action, ended, reward, strict=True)]
        whole = many.rollout(obs.numpy(), action.numpy(), ended=ended.numpy(), rewards=reward.numpy())
        np.testing.assert_allclose(whole, torch.stack(paid), rtol=1e-5)
        assert many.alpha == pytest.approx(one.alpha)
        assert (whole == 0).any() == (mode == "next_step")

    def test_steps_that_only_reset_do_not_count(self) -> None:
        obs, action, ended, reward = self.steps(n=1)
        reset = torch.cat([torch.zeros(1, 1, dtype=torch.bool), ended[:-1]])
        reset[1:] &= ~reset[:-1]  # what follows a reset is a step again
        alphas = []
        for spike in (0.0, 1e6):
            explorer = critex.CAE(embed, "auto", autoreset="next_step")
            explorer.rollout(obs, action, ended=ended & ~reset, rewards=torch.where(reset, spike, reward))
            alphas.append(explorer.alpha)
        assert reset.any() and alphas[0] == alphas[1]

    def test_either_end_or_start_of_episodes(self) -> None:
        obs, action, ended, reward = self.steps()
        start = torch.cat([torch.ones(1, 2, dtype=torch.bool), ended[:-1]])
        by_end, by_start = (critex.CAE(embed, "auto") for _ in range(2))
        paid = by_end.rollout(obs, action, ended=ended, rewards=reward)
        assert torch.equal(by_start.rollout(obs, action, episode_start=start, rewards=reward), paid)

    def test_saving_resetting_and_a_number_instead(self) -> None:
        obs, action, ended, reward = self.steps()
        explorer, again = (critex.CAE(embed, "auto", num_envs=2) for _ in range(2))
        explorer.rollout(obs[:20], action[:20], ended=ended[:20], rewards=reward[:20])
        again.load_state_dict(explorer.state_dict())
        rest = [
            x.rollout(obs[20:], action[20:], ended=ended[20:], rewards=reward[20:]) for x in (explorer, again)
        ]
        assert torch.equal(*rest)
        explorer.reset()
        assert explorer.alpha == _alpha.RATIO
        again.alpha = 0.3
        assert again.peek(obs[0], action[0]).shape == (2,)
        again(obs[0], action[0])
        assert again.alpha == 0.3
        for wrong in ("auto", "car", -1.0):  # "auto" became 0.1
            with pytest.raises(ValueError, match="alpha"):
                again.alpha = wrong
        assert again.alpha == 0.3

    def test_what_is_missing(self) -> None:
        explorer = critex.CAE(embed, "auto")
        with pytest.raises(ValueError, match="alpha='auto' needs rewards="):
            explorer(OBS, ACTION, ended=[False])
        with pytest.raises(ValueError, match="alpha='auto' needs ended="):
            explorer(OBS, ACTION, rewards=[1.0])
        with pytest.raises(ValueError, match=r"rewards must have the shape of actions, \[1\]; got \[2\]"):
            explorer(OBS, ACTION, ended=[False], rewards=[1.0, 1.0])
        with pytest.raises(ValueError, match="use 'auto'"):
            critex.CAE(embed, "auto_decay")  # type: ignore[arg-type]
        assert explorer.explorer is None  # nothing was remembered


class TestInference:
    """The commonest critics, given as they are."""

    def test_a_q_network_over_discrete_actions(self) -> None:
        q = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        envs = gym.make_vec("CartPole-v1", num_envs=3)
        explorer = critex.CAE(q, envs=envs, scaling="none")
        obs, actions = torch.randn(3, 4), torch.tensor([1, 0, 1])
        got = explorer(obs, actions, ended=[False] * 3)
        phi = torch.cat([q[:2](obs), nn.functional.one_hot(actions, 2)], -1).double()
        gram = critex.Gram(10, ridge=1.0)
        torch.testing.assert_close(got, gram.observe(phi.detach()).sqrt().float())

    def test_a_state_value_network_over_continuous_actions(self) -> None:
        v = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        explorer = critex.CAE(v, scaling="none")
        explorer(OBS, ACTION)
        assert explorer.explorer.gram.dim == 8 + 1

    def test_a_critic_that_takes_the_action(self) -> None:
        class Q(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.head = nn.Linear(3, 8), nn.Linear(8, 1)

            def forward(self, obs: Tensor, action: Tensor) -> Tensor:
                return self.head(self.body(torch.cat([obs, action], -1)))

        explorer = critex.CAE(Q(), scaling="none")
        explorer(OBS, ACTION)
        assert explorer.explorer.gram.dim == 8

    def test_an_embed_method_comes_first(self) -> None:
        class V(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = nn.Linear(2, 1)

            def embed(self, obs: Tensor) -> Tensor:
                return 2 * obs

        got = critex.CAE(V(), embedding="next_state", scaling="none")(OBS, ACTION, next_obs=OBS)
        assert got.item() == pytest.approx(6)

    def test_what_cannot_be_told_is_asked_for(self) -> None:
        with pytest.raises(ValueError, match="embedding='state_action' if it does"):
            critex.CAE(lambda *inputs: inputs[0])
        with pytest.raises(ValueError, match="did you mean next_state"):
            critex.CAE(state, embedding="nextstate")

    @pytest.mark.parametrize("kind", [critex.CAE, critex.CAEPlus])
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_arrays_get_the_dtype_of_the_critic(self, kind: Any, dtype: Any) -> None:
        for own in (torch.float32, torch.float64):
            q = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(own)
            explorer = kind(q, num_actions=2)
            obs, actions = np.ones((3, 4), dtype), np.array([0, 1, 1])
            assert explorer(obs, actions).dtype == np.float32
            if kind is critex.CAEPlus:
                explorer.loss(obs, actions, obs).backward()

    def test_rewards_keep_their_dtype(self) -> None:
        explorer = critex.CAE(embed)
        for dtype in (np.float32, np.float64):
            assert (np.zeros(1, dtype) + explorer(OBS.numpy(), ACTION.numpy())).dtype == dtype
        for kind in (torch.float32, torch.float64):
            assert (torch.zeros(1, dtype=kind) + explorer(OBS, ACTION)).dtype == kind


class TestEpisodes:
    """Where episodes begin, from `terminated | truncated` alone."""

    def play(self, mode: str, scope: str, rollout: bool = False) -> tuple[list[float], int, int]:
        """(bonuses of env 0, steps taken, rows in the memory) on an env of 10 steps per episode."""
        if hasattr(gym.vector, "AutoresetMode"):
            options = {"autoreset_mode": gym.vector.AutoresetMode[mode]}
        elif mode == ("SAME_STEP" if gym.__version__.startswith("0.") else "NEXT_STEP"):
            options = {}
        else:
            pytest.skip(f"gymnasium {gym.__version__} has no other autoreset mode")
        envs = gym.vector.SyncVectorEnv(
            [lambda: gym.make("CartPole-v1", max_episode_steps=10)] * 2, **options
        )
        explorer = critex.CAE(state, envs=envs, scope=scope, scaling="none", zero_first=True, ridge=1.0)
        obs, _ = envs.reset(seed=0)
        columns: list[tuple[np.ndarray, ...]] = []
        for t in range(40):
            actions = np.array([t % 2, t % 2])
            next_obs, _, terminated, truncated, _ = envs.step(actions)
            columns.append((obs, actions, terminated | truncated))
            obs = next_obs
        if rollout:
            o, a, e = (np.stack(column) for column in zip(*columns, strict=True))
            bonus = np.concatenate(
                [explorer.rollout(o[i : i + 20], a[i : i + 20], ended=e[i : i + 20]) for i in (0, 20)]
            )
        else:
            bonus = np.stack([explorer(o, a, ended=e) for o, a, e in columns])
        matrix = explorer.explorer.gram.matrix()[0] - torch.eye(6)
        return bonus[:, 0].tolist(), 40, round(matrix[4:, 4:].trace().item())  # the one-hot block counts rows

    @pytest.mark.parametrize("rollout", [False, True])
    @pytest.mark.parametrize("scope", ["lifelong", "episodic"])
    def test_reset_steps_earn_nothing_and_leave_no_trace(self, scope: str, rollout: bool) -> None:
        bonus, _, rows = self.play("NEXT_STEP", scope, rollout)
        resets, firsts = [10, 21, 32], [0, 11, 22, 33]
        assert [t for t, b in enumerate(bonus) if b == 0] == sorted(resets + firsts)
        assert rows == (2 * (40 - len(resets)) if scope == "lifelong" else 7)

    @pytest.mark.parametrize("given", [{}, {"episode_start": [True]}])
    def test_resets_in_the_next_step_need_the_ends(self, given: dict[str, Any]) -> None:
        """From anything else the steps that only reset cannot be told; they were paid and remembered."""
        with pytest.raises(ValueError, match="autoreset='next_step' needs ended="):
            critex.CAE(embed, autoreset="next_step")(OBS, ACTION, **given)

    @pytest.mark.parametrize("scope", ["lifelong", "episodic"])
    def test_where_the_env_resets_in_the_same_step_every_step_counts(self, scope: str) -> None:
        bonus, steps, rows = self.play("SAME_STEP", scope)
        assert [t for t, b in enumerate(bonus) if b == 0] == [0, 10, 20, 30]
        assert rows == (2 * steps if scope == "lifelong" else 10)

    @pytest.mark.parametrize("scope", ["lifelong", "episodic"])
    def test_a_rollout_is_its_steps(self, scope: str) -> None:
        one, many = (self.play("NEXT_STEP", scope, rollout)[0] for rollout in (False, True))
        assert one == pytest.approx(many, rel=1e-6)

    def test_a_single_env_that_resets_by_itself(self) -> None:
        env = gym.wrappers.Autoreset(gym.make("CartPole-v1", max_episode_steps=3))
        explorer = critex.CAE(state, envs=env, scaling="none")
        obs, _ = env.reset(seed=0)
        bonuses = []
        for _ in range(8):
            next_obs, _, terminated, truncated, _ = env.step(0)
            bonuses.append(explorer(obs[None], [0], ended=[terminated or truncated]).item())
            obs = next_obs
        assert [t for t, b in enumerate(bonuses) if b == 0] == [3, 7]

    @pytest.mark.parametrize("mode", ["next_step", "same_step"])
    def test_environments_that_were_reset_begin_new_episodes(self, mode: Any) -> None:
        explorer = critex.CAE(embed, autoreset=mode, scope="episodic", scaling="none", num_envs=1)
        first = [explorer(OBS, ACTION, ended=[ended]).item() for ended in (False, True)]
        explorer.begin_episodes()
        assert [explorer(OBS, ACTION, ended=[ended]).item() for ended in (False, True)] == first


def test_discrete_actions_may_start_anywhere() -> None:
    env = gym.make("CartPole-v1")
    env.action_space = gym.spaces.Discrete(2, start=5)
    shifted = critex.CAE(state, envs=env, scaling="none")
    plain = critex.CAE(state, num_actions=2, scaling="none")
    obs = np.ones((1, 4), np.float32)
    for action in (0, 1, 1):
        assert shifted(obs, [5 + action]) == plain(obs, [action])
    with pytest.raises(critex.UserError, match="integers from 5 to 6"):
        shifted(obs, [0])


def test_a_function_that_returns_the_value_is_no_embedding() -> None:
    with pytest.raises(critex.UserError, match=r"one number per row.*critex\.last_hidden"):
        critex.CAE(lambda obs: obs.sum(-1, keepdim=True), num_actions=2)(np.ones((1, 4)), [0])


@pytest.mark.parametrize(
    "obs", [(np.ones((1, 4)), np.ones((1, 4))), type("TensorDict", (), {"keys": None})()]
)
def test_observations_of_other_kinds_are_named(obs: Any) -> None:
    with pytest.raises(critex.UserError, match=f"dicts of them; got {type(obs).__name__}"):
        critex.CAE(state, num_actions=2)(obs, [0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, torch.float64])
def test_a_critic_that_takes_no_such_numbers(dtype: Any) -> None:
    critic = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    tensors = isinstance(dtype, torch.dtype)
    obs = torch.ones(1, 1, 4, 4, dtype=dtype) if tensors else np.ones((1, 1, 4, 4), dtype)
    for explorer in (critex.CAE(critic, num_actions=2), critex.CAEPlus(critic, num_actions=2)):
        with pytest.raises(
            critex.UserError, match=rf"inputs of {torch.as_tensor(obs).dtype} .* obs / 255\.0"
        ):
            explorer(obs, np.array([1]))
        assert explorer(obs / 255.0 if not tensors else obs.float(), np.array([1])) > 0
    with pytest.raises(RuntimeError, match="channels"):  # of shapes, torch says enough
        explorer(np.ones((1, 2, 4, 4)), np.array([1]))


@pytest.mark.parametrize("form", ["state_action", "state", "next_state", "state_and_action", "block"])
def test_a_form_that_does_not_fit_the_critic(form: Any) -> None:
    critic: Any = (lambda s: s) if form == "state_action" else embed
    with pytest.raises(critex.UserError, match=rf"embedding='{form}' calls the critic as critic\(obs"):
        critex.CAE(critic, embedding=form)


def test_integers_in_a_box_are_numbers() -> None:
    envs = gym.make("Pendulum-v1")
    envs.action_space = gym.spaces.Box(0, 5, (2,), np.int64)
    ours, floats = (critex.CAE(lambda s: s, scaling="none", envs=envs) for _ in range(2))
    actions = np.array([[1, 4]])
    assert ours(OBS, actions).item() == floats(OBS, actions.astype(np.float32)).item() > 0


def test_actions_of_several_choices_go_in_as_vectors() -> None:
    class Choices(gym.Env):
        observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.MultiDiscrete([3, 2])

    with pytest.raises(critex.UserError, match=r"MultiDiscrete\(\[3 2\]\) is not supported.*action_dim="):
        critex.CAE(lambda s: s, envs=Choices())
    explorer = critex.CAE(lambda s: s, envs=Choices(), action_dim=5, scaling="none")
    obs, one_hot = np.ones((1, 3), np.float32), np.array([[0, 0, 1, 1, 0]])
    assert explorer(obs, one_hot, ended=[False]).item() == pytest.approx(5**0.5)  # ‖[φ(s); a]‖


def test_what_the_loss_of_cae_plus_refuses() -> None:
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    plus, obs, action = critex.CAEPlus(critic, num_actions=2), torch.randn(3, 4), torch.tensor([0, 1, 1])
    assert plus.loss(obs, action, obs).isfinite()
    for bad in ((obs, action, obs[:2]), (obs[:2], action, obs), (obs[:0], action[:0], obs[:0])):
        with pytest.raises(critex.UserError, match="same B ≥ 1"):
            plus.loss(*bad)
    continuous = critex.CAEPlus(critic, action_dim=2)
    for call in (continuous, lambda s, a: continuous.loss(s, a, s)):
        with pytest.raises(critex.UserError, match="actions must have 2 numbers in each row"):
            call(obs, torch.randn(3, 3))


def test_metrics_of_the_bonus() -> None:
    explorer = critex.CAE(embed, alpha=0.5, scaling="none")
    assert explorer.metrics() == {}
    bonus = explorer(OBS, ACTION).item()
    metrics = explorer.metrics()
    assert metrics["alpha"] == 0.5 and 0.5 * metrics["bonus"] == pytest.approx(bonus)


def test_peek_changes_nothing_and_reset_forgets() -> None:
    explorer = critex.CAE(embed, alpha=2.0)
    first = explorer(OBS, ACTION).item()
    before = {name: x.clone() for name, x in explorer.state_dict().items() if isinstance(x, Tensor)}
    peeked = explorer.peek(OBS.repeat(3, 1), ACTION.repeat(3, 1))
    assert peeked.shape == (3,) and 0 < peeked[0] < first
    assert all(torch.equal(x, explorer.state_dict()[name]) for name, x in before.items())
    explorer.reset()
    assert explorer(OBS, ACTION).item() == first


@pytest.mark.parametrize(("form", "bonuses"), [("state_and_action", [3 / 4, 2]), ("block", [2 / 3, 2])])
def test_peek_at_episodic_memories(form: Any, bonuses: list[float]) -> None:
    """One env: any number of rows. Several: one row for each. They saw φ(s) = (1, 1) with action 0 once."""

    def peeked(n: int, rows: int) -> list[float]:
        explorer = critex.CAE(
            lambda obs: obs,
            num_actions=2,
            embedding=form,
            num_envs=n,
            scope="episodic",
            scaling="none",
            strategy="ucb_squared",
        )
        explorer(torch.ones(n, 2), torch.zeros(n, dtype=torch.int64), ended=torch.zeros(n, dtype=torch.bool))
        return explorer.peek(torch.ones(rows, 2), torch.arange(rows) % 2).tolist()

    assert peeked(2, 2) == pytest.approx(bonuses)
    assert peeked(1, 4) == pytest.approx(2 * bonuses)
    with pytest.raises(critex.UserError, match="peek takes 3 rows, one for each; got 2"):
        peeked(3, 2)


def test_peek_draws_by_itself() -> None:
    """Thompson sampling: a peek follows the memory, and changes no later bonus."""
    one, two = (critex.CAE(embed, strategy="thompson", scaling="none") for _ in range(2))
    early = abs(one.peek(OBS, ACTION).item())
    for _ in range(200):
        assert one(OBS, ACTION).item() == two(OBS, ACTION).item()
        assert one.peek(OBS, ACTION).item() == two.peek(OBS, ACTION).item()
    assert abs(one.peek(OBS, ACTION).item()) < 0.2 * early


def test_reset_keeps_the_parameters_that_an_optimiser_holds() -> None:
    explorer = critex.CAEPlus(embed, dim=3, action_dim=1)
    parameters = [*explorer.parameters()]
    explorer(OBS, ACTION)
    explorer.reset()
    assert parameters and all(a is b for a, b in zip(parameters, explorer.parameters(), strict=True))
    gram = explorer.explorer.gram  # type: ignore[union-attr]
    assert torch.equal(gram.matrix()[0], torch.eye(gram.dim, dtype=gram.dtype))


@pytest.mark.parametrize("options", [{"scope": "episodic"}, {"strategy": "thompson", "thompson_hold": True}])
def test_the_first_call_tells_how_many_envs_there_are(options: dict[str, Any]) -> None:
    """Also an explorer that has its networks, or has answered a peek, before that."""
    obs, action, no = OBS.repeat(3, 1), ACTION.repeat(3, 1), torch.zeros(3, dtype=torch.bool)
    plus = critex.CAEPlus(embed, dim=3, action_dim=1, **options)
    assert plus(obs, action, ended=no).shape == (3,)
    again = critex.CAEPlus(embed, dim=3, action_dim=1, **options)
    again.load_state_dict(plus.state_dict())
    assert torch.equal(again(obs, action, ended=no), plus(obs, action, ended=no))
    peeked = critex.CAE(embed, **options)
    peeked.peek(OBS, ACTION)
    assert peeked(obs, action, ended=no).shape == (3,)


@pytest.mark.parametrize("options", [{"simultaneous": True}, {"strategy": "thompson", "thompson_hold": True}])
def test_a_rollout_is_the_same_as_its_steps_whatever_the_options(options: dict[str, Any]) -> None:
    rng = torch.Generator().manual_seed(0)
    obs, action = torch.randn(12, 3, 2, generator=rng), torch.randn(12, 3, 1, generator=rng)
    ended = torch.rand(12, 3, generator=rng) < 0.25
    one, many = (critex.CAE(embed, autoreset="next_step", **options) for _ in range(2))
    steps = [one(obs[t], action[t], ended=ended[t]) for t in range(12)]
    torch.testing.assert_close(many.rollout(obs, action, ended=ended), torch.stack(steps))


class Picture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())

    def embed(self, obs: Tensor) -> Tensor:
        phi: Tensor = self.body(obs)
        return phi


@pytest.mark.parametrize("form", ["state_and_action", "block", "next_state"])
def test_a_rollout_of_images_needs_no_other_critic(form: Any) -> None:
    torch.manual_seed(0)
    critic, obs, after = Picture(), *torch.rand(2, 5, 3, 1, 6, 6)
    action = torch.randint(2, (5, 3))
    one, many = (critex.CAE(critic, num_actions=2, embedding=form) for _ in range(2))
    steps = [one(obs[t], action[t], next_obs=after[t]) for t in range(5)]
    torch.testing.assert_close(many.rollout(obs, action, next_obs=after), torch.stack(steps))


def test_a_rollout_of_a_critic_that_joins_its_inputs_in_axis_1() -> None:
    obs, action = torch.randn(5, 3, 2), torch.randn(5, 3, 1)
    one, many = (critex.CAE(lambda obs, action: torch.cat([obs, action], 1)) for _ in range(2))
    steps = [one(obs[t], action[t]) for t in range(5)]
    torch.testing.assert_close(many.rollout(obs, action), torch.stack(steps))


@pytest.mark.parametrize("ended", [[False], [True], None])
def test_a_lifelong_memory_goes_on_with_more_envs(ended: list[bool] | None) -> None:
    for options in {}, {"strategy": "thompson", "thompson_hold": True}:
        if options and ended is None:
            continue
        mode: Any = "same_step" if ended is None else "next_step"
        one = critex.CAE(embed, autoreset=mode, **options)
        one(OBS, ACTION, ended=ended)
        two = critex.CAE(embed, num_envs=4, autoreset=mode, **options)
        two.load_state_dict(one.state_dict())
        bonus = two(OBS.repeat(4, 1), ACTION.repeat(4, 1), ended=[False] * 4)
        assert bonus.shape == (4,) and bonus.all()


def test_action_bounds_come_from_the_envs() -> None:
    plus = critex.CAEPlus(embed, dim=4, envs=gym.make("Pendulum-v1"))  # torques in [−2, 2]
    assert plus.explorer is not None
    low, high = plus.explorer.embedding.action_bounds()
    assert (low.item(), high.item()) == (-2, 2)


def test_inside_a_users_module_it_is_restored_before_its_first_call() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.explorer = critex.CAE(embed)

    one, two = Mine(), Mine()
    one.explorer(OBS, ACTION)
    two.load_state_dict(one.state_dict(), strict=False)
    assert (
        one.explorer(OBS, ACTION).item()
        == two.explorer(OBS, ACTION).item()
        != Mine().explorer(OBS, ACTION).item()
    )


def test_a_cast_of_a_users_module_does_not_round_off_the_memory() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
            self.explorer = critex.CAEPlus(self.critic, num_actions=2)

    mine, obs, action = Mine(), torch.randn(1, 3), torch.tensor([1])
    for cast in (mine.double, mine.half, mine.float):
        cast()
        weight = mine.critic[0].weight
        bonus = mine.explorer(obs.to(weight), action)
        assert bonus.isfinite().all()
        assert mine.explorer.loss(obs.to(weight), action, obs.to(weight)).dtype == weight.dtype
    assert mine.explorer.explorer.gram.dtype == torch.float64


def test_episode_boundaries_survive_saving() -> None:
    make = lambda: critex.CAE(embed, scope="episodic", scaling="none", autoreset="next_step")  # noqa: E731
    one, two = make(), make()
    one(OBS, ACTION, ended=[True])
    two.load_state_dict(one.state_dict())
    assert two(OBS, ACTION, ended=[False]).item() == 0  # a reset step
    assert two(OBS, ACTION, ended=[False]).item() == pytest.approx(5)  # then a new episode


def test_another_memory_is_refused() -> None:
    one = critex.CAE(embed)
    one(OBS, ACTION)
    with pytest.raises(ValueError, match="length 3; the critic's φ here has length 5"):
        critex.CAE(embed, dim=5).load_state_dict(one.state_dict())


def test_a_held_draw_needs_to_know_where_episodes_end() -> None:
    with pytest.raises(ValueError, match="needs ended="):
        critex.CAE(embed, strategy="thompson", thompson_hold=True)(OBS, ACTION)


def test_pickling_says_what_to_do_instead() -> None:
    with pytest.raises(ValueError, match="state_dict"):
        torch.save(critex.CAE(embed), io.BytesIO())


class TestCAEPlus:
    def make(self, **keywords: object) -> tuple[nn.Linear, critex.CAEPlus]:
        torch.manual_seed(0)
        body = nn.Linear(3, 16)
        explorer = critex.CAEPlus(
            lambda obs, action: body(torch.cat([obs, action], -1)), dim=16, action_dim=1, **keywords
        )
        return body, explorer

    def test_parameters(self) -> None:
        _, explorer = self.make(u_dim=5, hidden=7)
        expected = (16 * 5 + 5) + (2 * 5 * 7 + 7) + (7 * 1 + 1) + 1  # U, f̄ and log σ
        assert sum(p.numel() for p in explorer.parameters()) == expected

    def test_loss_reaches_the_critic_and_u_but_the_bonus_does_not(self) -> None:
        body, explorer = self.make()
        explorer(OBS, ACTION)
        assert body.weight.grad is None
        explorer.loss(torch.randn(8, 2), torch.randn(8, 1), torch.randn(8, 2)).backward()
        assert body.weight.grad is not None and explorer.explorer.U.weight.grad is not None

    def test_needs_its_sizes(self) -> None:
        with pytest.raises(ValueError, match="dim="):
            critex.CAEPlus(embed)

    def test_from_a_critic_and_its_envs(self) -> None:
        q = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        explorer = critex.CAEPlus(q, envs=gym.make("CartPole-v1"))
        explorer.loss(np.zeros((5, 4)), np.array([0, 1, 1, 0, 1]), np.ones((5, 4))).backward()
        assert q[0].weight.grad is not None

    def test_its_networks_follow_the_seed_alone(self) -> None:
        before = torch.get_rng_state()
        make = lambda seed: critex.CAEPlus(embed, dim=4, action_dim=1, seed=seed)  # noqa: E731
        one, two, other = (make(seed).explorer.U.weight for seed in (1, 1, 2))
        assert torch.equal(one, two) and not torch.equal(one, other)
        assert torch.equal(torch.get_rng_state(), before)
