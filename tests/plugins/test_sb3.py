"""The callback inside Stable-Baselines3: the same bonus as ours, in the right place, saved with the model."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from sb3_contrib import QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback, EveryNTimesteps
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import nn

import critex
from critex.explorers import _alpha
from critex.plugins.sb3 import ExplorerCallback, critic_embedding

from .line import Line

SMALL = {"policy_kwargs": {"net_arch": [16, 16]}, "seed": 0, "device": "cpu"}
OFF = SMALL | {"batch_size": 8, "buffer_size": 500, "learning_starts": 20}
ON = SMALL | {"n_steps": 32}
CONTINUOUS = {SAC, TD3, DDPG, TQC, CrossQ}
ON_POLICY = [PPO, A2C, TRPO, MaskablePPO, RecurrentPPO]
LSTM = {"net_arch": [16], "lstm_hidden_size": 16}
FEEDFORWARD_CRITIC = {RecurrentPPO: {"policy_kwargs": LSTM | {"enable_critic_lstm": False}}}


class Masked(Line):
    """With the masks that MaskablePPO asks for; they allow everything."""

    def action_masks(self) -> Any:
        return np.ones(2, bool)


def vector(n: int = 1, **keywords: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda: Monitor(Masked(**keywords))] * n)


def model(algorithm: Any, n: int = 1, policy: Any = "MlpPolicy", **options: Any) -> Any:
    env = options.pop("env", None) or vector(n, continuous=algorithm in CONTINUOUS)
    if algorithm is RecurrentPPO:
        policy = policy.replace("Policy", "LstmPolicy")
    base = ON if algorithm in ON_POLICY else OFF
    if algorithm in (PPO, MaskablePPO, RecurrentPPO):
        base = base | {"n_epochs": 2}
    if algorithm in ON_POLICY and algorithm is not A2C:
        base = base | {"batch_size": 32}
    return algorithm(policy, env, **deepcopy(base | options))  # SB3 writes into policy_kwargs


class Keep(BaseCallback):
    """Every bonus that another callback has paid."""

    def __init__(self, explorer: ExplorerCallback) -> None:
        super().__init__()
        self.explorer, self.paid = explorer, []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.paid.append(self.explorer.bonus)

    @property
    def bonus(self) -> Any:
        return np.concatenate(self.paid)


@pytest.mark.parametrize("algorithm", [DQN, SAC, TD3, DDPG, QRDQN, TQC, CrossQ, *ON_POLICY])
@pytest.mark.parametrize("explorer", ["cae", "cae_plus", "rnd"])
def test_every_algorithm_takes_the_callback(algorithm: Any, explorer: str) -> None:
    agent = model(algorithm, n=2, **FEEDFORWARD_CRITIC.get(algorithm, {}))
    callback = ExplorerCallback(explorer, alpha=0.3)
    agent.learn(64, callback=callback)
    assert callback.bonus is not None and np.isfinite(callback.bonus).all() and callback.bonus.max() > 0


@pytest.mark.parametrize("explorer", ["e3b", "icm", "ride", "noveld", "counts", "rnd+counts", "none"])
def test_every_explorer_goes_through_the_same_door(explorer: str) -> None:
    for agent in (model(DQN), model(PPO)):
        agent.learn(64, callback=ExplorerCallback(explorer, alpha=0.3))


@pytest.mark.parametrize("n", [1, 2])
def test_the_bonus_in_the_replay_buffer_is_ours(n: int) -> None:
    agent = model(SAC, n=n, learning_rate=0.0)
    critic = agent.critic

    def embed(obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return critic.q_networks[0][:-1](torch.cat([obs, action], dim=1))

    ours = critex.CAE(embed, alpha=0.5, num_envs=n)
    agent.learn(60, callback=ExplorerCallback("cae", alpha=0.5))
    buffer = agent.replay_buffer
    expected = [ours(buffer.observations[t], buffer.actions[t]) for t in range(buffer.pos)]
    np.testing.assert_allclose(buffer.rewards[: buffer.pos] - 1.0, expected, atol=1e-6)


@pytest.mark.parametrize("algorithm", [SAC, PPO])
def test_alpha_from_the_scales_of_rewards_and_bonuses(
    algorithm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_alpha, "WARMUP", 10)
    agent, callback = model(algorithm, n=2, gamma=0.8), ExplorerCallback("cae", alpha="auto")
    rule, phases = _alpha.Alpha("auto", 0.8), []

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            bonus = torch.from_numpy(callback.bonus)
            alpha = rule.observe(torch.ones(bonus.shape), bonus, callback.rollout.episode_start)
            assert callback.alpha == pytest.approx(alpha)
            if algorithm is PPO:
                stored = self.locals["rollout_buffer"].rewards
            else:
                buffer = self.model.replay_buffer
                stored = buffer.rewards[buffer.pos - len(bonus) : buffer.pos]
            np.testing.assert_allclose(stored, 1.0 + alpha * callback.bonus, rtol=1e-6)
            phases.append(alpha)

    agent.learn(128, callback=[callback, Look()])
    assert len(set(phases)) > 1
    agent.save(tmp_path / "agent.zip")
    loaded = algorithm.load(tmp_path / "agent.zip", env=vector(2, continuous=algorithm is SAC))
    again = ExplorerCallback("cae", alpha="auto")
    loaded._setup_learn(0, again)
    assert again.alpha == callback.alpha


def test_alpha_sees_rewards_without_the_value_after_a_truncation() -> None:
    """SB3 adds γV(s') to the reward where an episode is truncated; the environment itself pays nothing here."""
    agent = model(PPO, env=vector(truncate=True, reward=0.0))
    with torch.no_grad():
        agent.policy.value_net.bias.fill_(100.0)
    callback = ExplorerCallback("cae", alpha=0.5)
    agent.learn(32, callback=callback)
    assert callback.explorer.alpha.metrics()["bonus_share"] == 1.0
    assert agent.rollout_buffer.rewards.max() > 50


class StopAfter(BaseCallback):
    """Stops `learn` after so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def _on_step(self) -> bool:
        return self.n_calls < self.steps


@pytest.mark.parametrize("train_freq", [1, 4, (2, "episode")])
@pytest.mark.parametrize("stop", [41, 1000])
def test_the_bonus_is_the_same_however_many_steps_are_collected(train_freq: Any, stop: int) -> None:
    agent = model(DQN, learning_rate=0.0, train_freq=train_freq)
    agent.learn(60, callback=[ExplorerCallback("cae", alpha=0.5), StopAfter(stop)])
    buffer = agent.replay_buffer
    assert buffer.pos >= min(stop - 1, 60)

    def embed(obs: torch.Tensor) -> torch.Tensor:
        return agent.q_net.q_net[:-1](obs)

    ours = critex.CAE(embed, alpha=0.5, embedding="state_and_action", num_actions=2, num_envs=1)
    expected = [ours(buffer.observations[t], buffer.actions[t, :, 0]) for t in range(buffer.pos)]
    np.testing.assert_allclose(buffer.rewards[: buffer.pos] - 1.0, expected, atol=1e-6)


@pytest.mark.parametrize("train_freq", [1, 4, (1, "episode"), (2, "episode")])
@pytest.mark.parametrize("algorithm", [DQN, SAC])
def test_no_batch_is_drawn_before_every_stored_reward_has_its_bonus(algorithm: Any, train_freq: Any) -> None:
    agent = model(algorithm, train_freq=train_freq)
    buffer, drawn = agent.replay_buffer, []
    sample = buffer.sample

    def watched(*args: Any, **keywords: Any) -> Any:
        drawn.append(buffer.pos)
        assert (buffer.rewards[: buffer.pos] > 1.0).all()
        return sample(*args, **keywords)

    buffer.sample = watched
    agent.learn(60, callback=ExplorerCallback("cae", alpha=0.5))
    assert len(drawn) >= 2 and len(set(drawn)) >= 2


def test_a_collection_phase_longer_than_the_buffer_is_refused() -> None:
    agent = model(DQN, buffer_size=4, train_freq=8)
    with pytest.raises(critex.UserError, match="larger buffer_size"):
        agent.learn(16, callback=ExplorerCallback("cae"))


def test_a_replay_buffer_that_wraps_around_has_each_bonus_once() -> None:
    agent = model(DQN, n=2, buffer_size=22, train_freq=4)
    callback = ExplorerCallback("cae", alpha=0.5)
    keep = Keep(callback)
    agent.learn(64, callback=[callback, keep])
    buffer = agent.replay_buffer
    newest = np.roll(keep.bonus[-buffer.buffer_size :], buffer.pos, axis=0)
    assert buffer.full
    np.testing.assert_allclose(buffer.rewards, 1.0 + 0.5 * newest, rtol=1e-6)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_the_bonus_in_the_rollout_is_ours_and_in_the_returns(algorithm: Any) -> None:
    agent = model(algorithm, n=3, learning_rate=0.0)
    callback = ExplorerCallback("cae", alpha=0.5)
    seen: dict[str, Any] = {}

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer = self.locals["rollout_buffer"]
            names = (
                "observations",
                "actions",
                "rewards",
                "returns",
                "advantages",
                "values",
                "episode_starts",
            )
            seen.update({name: getattr(buffer, name).copy() for name in names})

    agent.learn(96, callback=[callback, Look()])

    def embed(obs: torch.Tensor) -> torch.Tensor:
        return agent.policy.mlp_extractor.forward_critic(obs)

    ours = critex.CAE(embed, alpha=0.5, embedding="state_and_action", num_actions=2, num_envs=3)
    actions = seen["actions"][..., 0]
    expected = [ours(obs, action) for obs, action in zip(seen["observations"], actions, strict=True)]
    np.testing.assert_allclose(seen["rewards"] - 1.0, expected, atol=1e-6)
    np.testing.assert_allclose(callback.bonus, np.array(expected) / 0.5, atol=1e-6)
    assert not np.allclose(seen["returns"], 0)


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("algorithm", ON_POLICY)
def test_advantages_and_returns_are_those_of_reward_and_bonus(algorithm: Any, truncate: bool) -> None:
    agent, seen = model(algorithm, env=vector(3, truncate=truncate), gamma=0.9, gae_lambda=0.8), []
    compute = agent.rollout_buffer.compute_returns_and_advantage

    def watched(last_values: torch.Tensor, dones: Any) -> None:
        compute(last_values=last_values, dones=dones)
        seen.append((last_values.numpy(force=True).ravel(), dones))

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer, (last_values, dones) = self.model.rollout_buffer, seen[0]  # SB3's own
            seen.clear()
            values = np.concatenate([buffer.values, last_values[None]]).astype(np.float64)
            going = 1.0 - np.concatenate([buffer.episode_starts[1:], dones[None]])
            advantage, tail = np.zeros_like(values[1:]), 0.0
            for t in reversed(range(len(advantage))):
                delta = buffer.rewards[t] + 0.9 * going[t] * values[t + 1] - values[t]
                advantage[t] = tail = delta + 0.9 * 0.8 * going[t] * tail
            np.testing.assert_allclose(buffer.advantages, advantage, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(buffer.returns, advantage + values[:-1], rtol=1e-5, atol=1e-6)

    agent.rollout_buffer.compute_returns_and_advantage = watched
    explorer = ExplorerCallback("counts", alpha=0.5)
    agent.learn(192, callback=[explorer, Look()])
    assert explorer.bonus.min() > 0


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("algorithm", ON_POLICY)
def test_the_audit_compares_the_returns_with_the_value_of_the_last_state(
    algorithm: Any, truncate: bool
) -> None:
    class Stale(BaseCallback):
        """Computes the returns again, as if the last state acted in were the state after it."""

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer = self.model.rollout_buffer
            last = torch.from_numpy(buffer.values[-1])
            buffer.compute_returns_and_advantage(last_values=last, dones=self.locals["dones"])

    for mistake, problems in (([], []), ([Stale()], ["bonus in returns"])):
        envs = [critex.audit.Recorder(Masked(truncate=truncate)) for _ in range(2)]
        agent = model(algorithm, env=DummyVecEnv([lambda env=env: env for env in envs]))
        explorer = ExplorerCallback("counts", alpha=0.5)
        watch = critex.sb3.AuditCallback(explorer)
        agent.learn(64, callback=[explorer, *mistake, watch])
        found = critex.audit.audit(watch.record(), envs)
        assert found.problems == problems, str(found)


@pytest.mark.parametrize("truncate", [False, True])
def test_the_next_state_is_the_true_final_one(truncate: bool) -> None:
    env = vector(2, continuous=True, truncate=truncate)
    agent = model(SAC, env=env, learning_rate=0.0)
    agent.learn(60, callback=ExplorerCallback("counts", alpha=1.0, kind="first_visit"))
    buffer = agent.replay_buffer
    # Every s' of the line is new except the true final one seen twice; a reset observation would recur.
    seen: set[bytes] = set()
    starts = np.ones(2, bool)
    for t in range(buffer.pos):
        for i in range(2):
            if starts[i]:
                seen.add(buffer.observations[t, i].tobytes())
            key = buffer.next_observations[t, i].tobytes()
            assert buffer.rewards[t, i] == 1.0 + (key not in seen)
            seen.add(key)
        starts = buffer.dones[t].astype(bool)
    assert starts.any() or buffer.dones[: buffer.pos].any()


def test_a_rollout_pairs_each_state_with_its_true_successor() -> None:
    pairs: list[Any] = []
    agent = model(PPO, n=2)
    callback = ExplorerCallback("none", alpha=0.0)
    agent._setup_learn(64, callback)
    callback.explorer.bonus_rollout = lambda rollout: pairs.append(rollout) or rollout.bonus  # type: ignore
    agent.learn(64, callback=callback)
    (rollout,) = pairs
    assert torch.equal(rollout.next_obs[..., 2], rollout.obs[..., 2])  # the same episode
    assert torch.equal(rollout.next_obs[..., 1], rollout.obs[..., 1] + 1)  # one step later
    assert torch.equal(rollout.terminated, rollout.next_obs[..., 1] == 3 + rollout.obs[..., 2] % 3)
    assert torch.equal(rollout.episode_start, rollout.obs[..., 1] == 0)


def test_an_episodic_memory_is_reset_with_each_env() -> None:
    agent = model(DQN, n=2, learning_rate=0.0)
    callback = ExplorerCallback("counts", alpha=1.0, scope="episodic", kind="first_visit")
    agent.learn(60, callback=callback)
    assert (agent.replay_buffer.rewards[: agent.replay_buffer.pos] == 2.0).all()  # time makes each state new


def test_vec_normalize_stores_the_bonus_with_the_original_reward() -> None:
    env = VecNormalize(vector(2, continuous=True))
    agent = model(SAC, env=env)
    callback = ExplorerCallback("cae", alpha=0.5)
    keep = Keep(callback)
    agent.learn(60, callback=[callback, keep])
    buffer = agent.replay_buffer
    np.testing.assert_allclose(buffer.rewards[: buffer.pos], 1.0 + 0.5 * keep.bonus, rtol=1e-6)

    env = VecNormalize(vector(2))
    agent = model(PPO, env=env)
    agent.learn(64, callback=callback)
    assert np.isfinite(agent.rollout_buffer.returns).all()


def test_integer_rewards_of_subprocesses_take_a_bonus() -> None:
    env = SubprocVecEnv([partial(Line, reward=1)] * 2, start_method="fork")
    try:
        agent = model(DQN, env=env)
        callback = ExplorerCallback("cae", alpha=0.5)
        keep = Keep(callback)
        agent.learn(40, callback=[callback, keep])
    finally:
        env.close()
    buffer = agent.replay_buffer
    np.testing.assert_allclose(buffer.rewards[: buffer.pos], 1.0 + 0.5 * keep.bonus, rtol=1e-6)


@pytest.mark.parametrize("algorithm", [PPO, DQN, SAC])
@pytest.mark.parametrize(("kind", "policy"), [("image", "CnnPolicy"), ("dict", "MultiInputPolicy")])
def test_images_and_dicts(algorithm: Any, kind: Any, policy: str) -> None:
    env = vector(1, continuous=algorithm in CONTINUOUS, kind=kind)
    agent = model(algorithm, env=env, policy=policy)
    for explorer in ("cae_plus", "rnd"):
        callback = ExplorerCallback(explorer, alpha=0.3, fresh=True)
        agent.learn(32, callback=callback)
        assert callback.bonus is not None and np.isfinite(callback.bonus).all()


@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_integers_in_dicts(algorithm: Any) -> None:
    """SB3 stores an integer as [1]; an explorer's own encoder sees it as the space says."""

    class Integers(Line):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gym.spaces.Dict(
                {"n": gym.spaces.Discrete(3), "m": gym.spaces.MultiDiscrete([3, 4])}
            )

        def _obs(self) -> Any:
            return {"n": self.t % 3, "m": np.array([self.t % 3, self.t % 4])}

    callback = ExplorerCallback("e3b")
    model(algorithm, env=DummyVecEnv([Integers] * 2), policy="MultiInputPolicy").learn(64, callback=callback)
    batch = callback._sample(torch.Generator())
    assert callback.training.loss is not None and callback.bonus.max() > 0
    assert batch.obs["n"].shape == batch.action.shape  # type: ignore[index, call-overload]


def test_recurrent_ppo_where_the_critic_has_a_state_embedding() -> None:
    agent = model(RecurrentPPO, n=2)
    with pytest.raises(critex.UserError, match="no layer below its LSTM"):
        agent.learn(64, callback=ExplorerCallback("cae"))
    model(RecurrentPPO, n=2).learn(64, callback=ExplorerCallback("e3b"))
    env = vector(1, kind="image")
    model(RecurrentPPO, env=env, policy="CnnPolicy", policy_kwargs=LSTM).learn(
        32, callback=ExplorerCallback("cae")
    )


class Dueling(nn.Module):
    """Q = V + A − mean A, whose two layers at the end have the same input φ."""

    def __init__(self, features: int, actions: int) -> None:
        super().__init__()
        self.below = nn.Sequential(nn.Linear(features, 16), nn.ReLU())
        self.value, self.advantage = nn.Linear(16, 1), nn.Linear(16, actions)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        phi = self.below(features)
        advantage = self.advantage(phi)
        return self.value(phi) + advantage - advantage.mean(-1, keepdim=True)


class DuelingNetwork(QNetwork):
    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.q_net = Dueling(self.features_dim, int(self.action_space.n))


class DuelingPolicy(DQNPolicy):
    def make_q_net(self) -> Any:
        return DuelingNetwork(**self._update_features_extractor(self.net_args, features_extractor=None))


class DeepPolicy(ActorCriticPolicy):
    """With a hidden layer in the value head."""

    def _build(self, schedule: Any) -> None:
        super()._build(schedule)
        self.value_net = nn.Sequential(nn.Linear(16, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 1)))
        self.optimizer = self.optimizer_class(self.parameters(), lr=schedule(1))


class Bilinear(nn.Module):
    """A head without a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Bilinear(16, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, x)


def test_a_custom_head_gives_the_input_of_its_last_linear_layer() -> None:
    agent = model(PPO, policy=DeepPolicy)
    agent.learn(32, callback=ExplorerCallback("cae_plus"))
    obs, policy = torch.rand(4, 3), agent.policy
    hidden = policy.value_net[0](policy.mlp_extractor.forward_critic(obs)).tanh()
    torch.testing.assert_close(critic_embedding(agent).phi(obs), hidden)


def test_a_head_with_two_layers_at_its_end_needs_the_name_of_one() -> None:
    for layer, message in ((None, "several layers could be the last: .* layer="), ("valeu", "mean value")):
        with pytest.raises(critex.UserError, match=message):
            model(DQN, policy=DuelingPolicy).learn(60, callback=ExplorerCallback("cae", layer=layer))
    agent = model(DQN, policy=DuelingPolicy)
    agent.learn(60, callback=ExplorerCallback("cae_plus", layer="value"))
    obs = torch.rand(4, 3)
    torch.testing.assert_close(critic_embedding(agent, "value").phi(obs), agent.q_net.q_net.below(obs))


def test_explorers_that_need_no_critic_take_any_head() -> None:
    def without_linear() -> Any:
        agent = model(PPO)
        agent.policy.value_net = Bilinear()
        return agent

    for explorer in ("rnd", "counts"):
        model(DQN, policy=DuelingPolicy).learn(60, callback=ExplorerCallback(explorer))
        without_linear().learn(32, callback=ExplorerCallback(explorer))
    with pytest.raises(critex.UserError, match=r"no nn\.Linear.* e3b or rnd"):
        without_linear().learn(32, callback=ExplorerCallback("cae"))
    stranger = SimpleNamespace(policy=nn.Module(), action_space=gym.spaces.Discrete(2))
    with pytest.raises(critex.UserError, match="no critic in Module.* e3b or rnd"):
        critic_embedding(stranger).phi(torch.zeros(1, 3))


@pytest.mark.parametrize(("algorithm", "explorer"), [(SAC, "cae"), (PPO, "cae_plus"), (DQN, "e3b")])
def test_save_and_load_keep_the_memory(algorithm: Any, explorer: str, tmp_path: Path) -> None:
    agent = model(algorithm)
    callback = ExplorerCallback(explorer, alpha=0.2)
    agent.learn(64, callback=callback)
    agent.save(tmp_path / "agent.zip")
    loaded = algorithm.load(tmp_path / "agent.zip", env=vector(1, continuous=algorithm in CONTINUOUS))
    assert isinstance(loaded.critex, dict)  # plain values: no class of critex is needed to load a model
    again = ExplorerCallback(explorer, alpha=0.2)
    loaded._setup_learn(0, again)
    old, new = callback.explorer.state_dict(), again.explorer.state_dict()  # type: ignore[union-attr]
    assert old.keys() == new.keys()
    for key, value in old.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, new[key]), key
    with pytest.raises(critex.UserError, match="fresh=True"):
        loaded.learn(32, callback=ExplorerCallback("counts"))
    if explorer == "cae":
        with pytest.raises(critex.UserError, match="with ridge=1.0, this callback has 3.0; give the same"):
            loaded.learn(32, callback=ExplorerCallback(explorer, ridge=3.0))
    empty = ExplorerCallback("counts", fresh=True)
    loaded.learn(32, callback=empty)
    assert loaded.critex.callback is empty


def test_a_second_call_of_learn_goes_on_with_the_memory() -> None:
    agent = model(SAC)
    first = ExplorerCallback("cae")
    agent.learn(30, callback=first)
    before = first.explorer.gram.log_det()  # type: ignore[union-attr]
    agent.learn(1, callback=ExplorerCallback("cae"), reset_num_timesteps=False)
    assert agent.critex.callback.explorer.gram.log_det() > before


def test_a_callback_that_goes_on_with_another_model_leaves_each_its_own_memory() -> None:
    callback = ExplorerCallback("cae", alpha="auto")
    first, second = model(PPO), model(PPO, n=2)
    first.learn(32, callback=callback)
    log_det, rule = callback.explorer.gram.log_det(), callback.explorer.alpha.state_dict()
    second.learn(64, callback=callback)
    assert callback.explorer.alpha.state_dict()["steps"] == 64
    first._setup_learn(0, callback)
    assert torch.equal(callback.explorer.gram.log_det(), log_det)
    assert callback.explorer.alpha.state_dict() == rule
    assert callback.explorer.embedding.critic.__self__.policy is first.policy


class Interrupt(BaseCallback):
    """Ctrl-C in the second collection phase."""

    def _on_step(self) -> bool:
        if self.n_calls > 40:
            raise KeyboardInterrupt
        return True


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_after_an_interrupt_only_learn_with_the_callback_trains_the_explorer(algorithm: Any) -> None:
    agent, callback = model(algorithm), ExplorerCallback("rnd")
    with pytest.raises(KeyboardInterrupt):
        agent.learn(200, callback=[callback, Interrupt()])

    def trained(**keywords: Any) -> bool:
        before = [p.clone() for p in callback.explorer.learned()]
        agent.learn(64, **keywords)
        return not all(map(torch.equal, before, callback.explorer.learned()))

    assert not trained() and not trained(reset_num_timesteps=False)
    assert trained(callback=callback)


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_a_second_callback_in_the_same_learn_is_refused(algorithm: Any) -> None:
    agent, callback = model(algorithm), ExplorerCallback("rnd")
    for second in (callback, ExplorerCallback("rnd"), ExplorerCallback("icm", fresh=True)):
        for first in (callback, ExplorerCallback("rnd")):
            with pytest.raises(critex.UserError, match="one ExplorerCallback"):
                agent.learn(64, callback=[first, CallbackList([second])])
            agent.learn(64)
            assert first.training.loss is None and first.training._hook is None
    for _ in range(2):
        agent.learn(64, callback=callback)
        agent.learn(64, callback=ExplorerCallback("rnd"), reset_num_timesteps=False)
    combined = ExplorerCallback("cae+rnd", fresh=True)
    agent.learn(64, callback=combined)
    assert combined.training.loss is not None and combined.bonus.max() > 0


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_a_callback_that_would_miss_steps_is_refused(algorithm: Any) -> None:
    def evaluation(n: int, inner: BaseCallback) -> EvalCallback:
        return EvalCallback(model(algorithm).get_env(), callback_on_new_best=inner, eval_freq=n)

    for wrapped in (EveryNTimesteps, lambda n, inner: EveryNTimesteps(n, CallbackList([inner])), evaluation):
        agent, callback = model(algorithm), ExplorerCallback("rnd")
        with pytest.raises(critex.UserError, match=r"(EveryNTimesteps|EvalCallback) passes single steps"):
            agent.learn(64, callback=wrapped(10, callback))
        agent.learn(64)
        assert not hasattr(callback, "training") or callback.training.loss is None


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_the_audit_comes_once_and_after_its_explorer(algorithm: Any) -> None:
    explorer = ExplorerCallback("cae")
    watch = critex.sb3.AuditCallback(explorer)
    agent = model(algorithm)
    for wrong in ([watch, explorer], [explorer, watch, watch], [watch]):
        with pytest.raises(critex.UserError, match="each once"):
            agent.learn(32, callback=wrong)
    agent = model(algorithm)
    for _ in range(2):
        agent.learn(32, callback=[explorer, watch], reset_num_timesteps=False)
    assert watch.record().bonus.max() > 0


def test_monitor_and_evaluation_stay_extrinsic() -> None:
    for algorithm in (PPO, SAC):
        agent = model(algorithm)
        agent.learn(64, callback=ExplorerCallback("cae", alpha=10.0))
        returns = [episode["r"] for episode in agent.ep_info_buffer]
        assert returns and set(returns) <= {3.0, 4.0, 5.0}
        mean, _ = evaluate_policy(agent, vector(1, continuous=algorithm is SAC), n_eval_episodes=3)
        assert mean == 4.0


def test_the_logger_shows_the_bonus() -> None:
    for algorithm in (PPO, SAC):
        agent = model(algorithm)
        callback = ExplorerCallback("cae_plus")
        seen: set[str] = set()
        dump = agent.dump_logs
        agent.dump_logs = lambda *a, seen=seen, agent=agent, dump=dump: (
            seen.update(agent.logger.name_to_value),
            dump(*a),
        )
        agent.learn(96, callback=callback)
        assert {"explore/bonus", "explore/bonus_std", "explore/loss"} <= seen


def test_the_loss_of_cae_plus_reaches_the_trunk_and_rnd_learns() -> None:
    weights = []
    for loss_coef in (0.0, 1.0):
        agent = model(DQN, learning_rate=1e-2)
        agent.learn(60, callback=ExplorerCallback("cae_plus", alpha=0.0, loss_coef=loss_coef))
        weights.append(agent.q_net.q_net[0].weight.detach().clone())
    assert not torch.equal(*weights)

    agent = model(PPO, learning_rate=1e-3, n_epochs=8)
    callback = ExplorerCallback("rnd", alpha=0.0)
    agent.learn(32, callback=callback)
    before = callback.bonus.mean()
    agent.learn(200, callback=callback)
    assert callback.bonus.mean() < before


@pytest.mark.parametrize(("algorithm", "bound"), [(SAC, 1.0), (PPO, 2.0)])
def test_inverse_dynamics_predict_actions_as_sb3_stores_them(algorithm: Any, bound: float) -> None:
    """The range of this env's actions is ±2; off-policy models store them scaled to ±1."""
    agent = model(algorithm, env=DummyVecEnv([lambda: Line(continuous=True)]))
    callback = ExplorerCallback("cae_plus")
    agent.learn(32, callback=callback)
    inverse = callback.explorer.inverse
    assert inverse.low.tolist() == [-bound] and inverse.high.tolist() == [bound]


@pytest.mark.parametrize("algorithm", [SAC, CrossQ, *ON_POLICY])
def test_alpha_zero_changes_nothing(algorithm: Any) -> None:
    options = FEEDFORWARD_CRITIC.get(algorithm, {})
    weights = []
    for callback in (None, ExplorerCallback("cae", alpha=0.0)):
        agent = model(algorithm, n=2, **options)
        agent.learn(192, callback=callback)
        weights.append(torch.cat([x.flatten() for x in agent.policy.state_dict().values()]))
    assert torch.equal(*weights)


def test_n_step_buffers_teach_pairs_of_one_step() -> None:
    agent = model(DQN, n_steps=3)
    callback = ExplorerCallback("cae_plus", alpha=0.1)
    agent.learn(60, callback=callback)
    batch = callback._sample(torch.Generator())
    assert torch.equal(batch.next_obs[:, 1], batch.obs[:, 1] + 1)  # type: ignore[index]


def test_what_is_refused() -> None:
    with pytest.raises(critex.UserError, match="did you mean cae"):
        ExplorerCallback("caee")
    with pytest.raises(critex.UserError, match="did you mean ridge"):
        ExplorerCallback("cae", rigde=1.0)
    with pytest.raises(critex.UserError, match="scaling='welford'"):
        ExplorerCallback("cae", scaling="batch")
    with pytest.raises(critex.UserError, match="replay buffer"):
        ExplorerCallback("cae", rebuild_every=10)

    class Two(Line):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.MultiDiscrete([2, 2])

    with pytest.raises(critex.UserError, match="Discrete and Box"):
        model(PPO, env=DummyVecEnv([Two])).learn(32, callback=ExplorerCallback("cae"))


def test_hindsight_replay_is_refused() -> None:
    from stable_baselines3 import HerReplayBuffer
    from stable_baselines3.common.envs import BitFlippingEnv

    agent = DQN(
        "MultiInputPolicy", BitFlippingEnv(n_bits=3), replay_buffer_class=HerReplayBuffer, buffer_size=100
    )
    with pytest.raises(critex.UserError, match="HerReplayBuffer"):
        agent.learn(10, callback=ExplorerCallback("cae"))
