"""The Learner hook inside RLlib. RLlib pins another gymnasium, so this runs in an environment of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("ray")
import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.tune import register_env

import critex
from critex.explorers import _alpha
from critex.plugins.audit import Record, Recorder, audit
from critex.plugins.rllib import MOST_UNFINISHED, BonusConnector, explore

from .line import Line

MODEL = {"fcnet_hiddens": [16, 16], "head_fcnet_hiddens": []}


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Any:
    quick = {"worker_niceness": 0}  # Ray's default, 15, starves the env runners on a busy machine
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, _system_config=quick)
    yield
    ray.shutdown()


def config(kind: type[Any], runners: int = 0, **training: Any) -> Any:
    settings: dict[Any, dict[str, Any]] = {
        PPOConfig: {"train_batch_size": 64, "minibatch_size": 32, "num_epochs": 1},
        DQNConfig: {"train_batch_size": 8, "num_steps_sampled_before_learning_starts": 20},
        SACConfig: {"train_batch_size": 8, "num_steps_sampled_before_learning_starts": 20},
        IMPALAConfig: {"train_batch_size": 40},
        APPOConfig: {"train_batch_size": 40},
    }

    def make(context: Any) -> Recorder:
        runner = getattr(context, "worker_index", 0)  # the reward says which env runner played the step
        return Recorder(Line(continuous=kind is SACConfig, reward=1.0 + runner))

    register_env("line", make)
    return (
        kind()
        .environment("line")
        .env_runners(num_env_runners=runners, rollout_fragment_length="auto" if kind is PPOConfig else 10)
        .learners(num_learners=0)
        .training(**(settings[kind] | training))
        .rl_module(model_config=MODEL)
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=10)
        .debugging(seed=0)
    )


def connector(algorithm: Any) -> BonusConnector:
    found: BonusConnector = algorithm.learner_group._learner.bonus_connector
    return found


def watched(algorithm: Any) -> tuple[list[Any], set[float]]:
    """The episodes that the Learner gets from now on, with the rewards it learns from, and the environments' rewards."""
    seen: list[Any] = []
    extrinsic: set[float] = set()
    learner = algorithm.learner_group._learner
    pipeline, bonus = learner._learner_connector, learner.bonus_connector

    class Watch:
        def __call__(self, *, episodes: list[Any], **keywords: Any) -> Any:
            extrinsic.update(float(reward) for e in episodes for reward in e.get_rewards())
            batch = bonus(episodes=episodes, **keywords)
            seen.extend(map(deepcopy, episodes))  # a later connector adds an artificial step
            return batch

        def __getattr__(self, name: str) -> Any:
            return getattr(bonus, name)

    pipeline.connectors[0] = Watch()
    return seen, extrinsic


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig, SACConfig])
@pytest.mark.parametrize("explorer", ["cae", "cae_plus", "rnd"])
def test_every_algorithm_takes_the_explorer(kind: Any, explorer: str) -> None:
    algorithm = explore(config(kind), explorer, alpha=0.3).build()
    ours = connector(algorithm)
    before = [weight.clone() for weight in ours.explorer.learned()]
    for _ in range(4):
        result = algorithm.train()
    assert result["env_runners"]["episode_return_max"] <= 5.0  # extrinsic
    assert result["learners"]["explore"]["bonus"] > 0
    if explorer != "rnd":
        assert ours.explorer.gram.log_det() > 0
    assert bool(before) == (explorer != "cae")
    assert all(not torch.equal(*pair) for pair in zip(before, ours.explorer.learned(), strict=True))
    if kind is not PPOConfig:  # the buffer keeps the environment's rewards, whatever was replayed
        stored = [reward for e in algorithm.local_replay_buffer.episodes for reward in e.get_rewards()]
        assert set(stored) == {1.0}
    algorithm.stop()


@pytest.mark.parametrize("kind", [PPOConfig, SACConfig])
def test_the_loss_of_cae_plus_reaches_the_critic(kind: Any) -> None:
    weights = []
    for loss_coef in (0.0, 1.0):
        made = config(kind) if kind is SACConfig else config(kind, lr=1e-2)
        algorithm = explore(made, "cae_plus", alpha=0.0, loss_coef=loss_coef).build()
        learner = algorithm.learner_group._learner
        module = learner.module["default_policy"].unwrapped()
        if kind is SACConfig:  # the range of the actions is ±2, and RLlib stores them scaled to ±1
            assert connector(algorithm).explorer.inverse.high.tolist() == [1.0]
        optimizer = connector(algorithm).training.critic
        connector(algorithm)(episodes=[episode(6, continuous=kind is SACConfig)], batch={})
        optimizer.zero_grad()
        optimizer.step()
        weights.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
        algorithm.stop()
    assert not torch.equal(*weights)


def episode(steps: int, *, continuous: bool = False, seed: int = 0) -> SingleAgentEpisode:
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, (steps, 1)).astype(np.float32) if continuous else rng.integers(2, size=steps)
    return SingleAgentEpisode(
        observations=list(rng.normal(size=(steps + 1, 3)).astype(np.float32)),
        actions=list(actions),
        rewards=[1.0] * steps,
        terminated=True,
        len_lookback_buffer=0,
    )


def parts(whole: SingleAgentEpisode, *cuts: int) -> list[SingleAgentEpisode]:
    """An episode as an env runner sends it, in pieces."""
    ends = [*cuts, len(whole)]
    return [
        SingleAgentEpisode(
            id_=whole.id_,
            observations=list(whole.observations[a : b + 1]),
            actions=list(whole.actions[a:b]),
            rewards=list(whole.rewards[a:b]),
            terminated=b == len(whole),
            t_started=a,
            len_lookback_buffer=0,
        )
        for a, b in zip([0, *cuts], ends, strict=True)
    ]


def our_rewards(
    ours: BonusConnector, episodes: list[SingleAgentEpisode], **options: Any
) -> list[list[float]]:
    """1 + αβ by `critex.CAE`, one episode after the other."""
    explorer = critex.CAE(
        ours.explorer.embedding.critic, dim=16, alpha=0.5, embedding="state_and_action", num_actions=2, **options
    )  # fmt: skip
    rewards = []
    for whole in episodes:
        first = np.array([True])
        mixed = []
        for obs, action in zip(
            whole.get_observations(slice(0, len(whole))), whole.get_actions(), strict=True
        ):
            mixed.append(1.0 + float(explorer(obs[None], np.array([action]), episode_start=first)[0]))
            first = np.array([False])
        rewards.append(mixed)
    return rewards


def test_the_bonus_is_ours() -> None:
    algorithm = explore(config(PPOConfig), "cae", alpha=0.5).build()
    module = algorithm.learner_group._learner.module["default_policy"].unwrapped()
    ours = connector(algorithm)
    obs = torch.randn(5, 3)
    expected_phi = module.encoder({"obs": obs})["encoder_out"]["critic"]
    assert torch.equal(ours.explorer.embedding.critic(obs), expected_phi)
    episodes = [episode(7), episode(4, seed=1)]
    expected = our_rewards(ours, episodes)
    episodes[0].to_numpy()
    episodes[0].rewards.data.setflags(write=False)  # as from Ray's object store
    ours(episodes=episodes, batch={})
    for got, mixed in zip(episodes, expected, strict=True):
        np.testing.assert_allclose(got.get_rewards(), mixed, rtol=1e-6, atol=1e-6)
    algorithm.stop()


def test_an_episodic_memory_belongs_to_its_episode_whichever_runner_plays_it() -> None:
    """Pieces of three episodes arrive interleaved; each bonus is that of its own episode alone."""
    algorithm = explore(config(PPOConfig), "cae", alpha=0.5, scope="episodic", scaling="none").build()
    ours = connector(algorithm)
    episodes = [episode(9), episode(7, seed=1), episode(5, seed=2)]
    expected = our_rewards(ours, episodes, scope="episodic", scaling="none")
    (a1, a2, a3), (b1, b2), (c1, c2) = parts(episodes[0], 3, 6), parts(episodes[1], 4), parts(episodes[2], 1)
    for update in ([a1, b1], [c1, a2, a3], [b2, c2]):
        ours(episodes=update, batch={})
    for pieces, mixed in zip(((a1, a2, a3), (b1, b2), (c1, c2)), expected, strict=True):
        np.testing.assert_allclose(np.concatenate([p.get_rewards() for p in pieces]), mixed, atol=1e-6)
    assert not ours.unfinished

    for seed in range(MOST_UNFINISHED + 2):  # runners that died in the middle of an episode
        ours.unfinished[str(seed)] = {}
    ours(episodes=parts(episode(4, seed=3), 2)[:1], batch={})
    assert len(ours.unfinished) <= MOST_UNFINISHED + 2
    lost = parts(episode(4, seed=4), 2)[1]  # its first piece never arrived
    ours(episodes=[lost], batch={})
    assert np.isfinite(lost.get_rewards()).all()
    algorithm.stop()


def test_threads_do_not_see_the_critic_of_each_other() -> None:
    algorithm = explore(config(IMPALAConfig), "cae").build()
    phi = connector(algorithm).explorer.embedding.critic
    batches = [torch.randn(50, 3) for _ in range(40)]
    with torch.no_grad():
        alone = [phi(batch) for batch in batches]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(phi, batches * 5))
    assert all(torch.equal(x, alone[i % 40]) for i, x in enumerate(together))
    algorithm.stop()


def test_a_replayed_transition_joins_the_memory_once() -> None:
    algorithm = explore(config(DQNConfig), "cae", alpha=1.0).build()
    ours = connector(algorithm)
    whole = episode(5)
    first, rest = parts(whole, 2)
    ours(episodes=[rest], batch={})
    ours(episodes=[first], batch={})
    matrix = ours.explorer.gram.matrix()
    assert float(matrix.diagonal(dim1=1, dim2=2).sum()) > 18 + 4  # every step has a one-hot action in φ
    again = parts(whole, 4)
    ours(episodes=again, batch={})
    assert torch.equal(ours.explorer.gram.matrix(), matrix)
    assert all((np.asarray(piece.get_rewards()) > 1.0).all() for piece in again)
    algorithm.stop()


@pytest.mark.parametrize("buffer", ["PrioritizedEpisodeReplayBuffer", "EpisodeReplayBuffer"])
@pytest.mark.parametrize("kind", [DQNConfig, SACConfig])
def test_the_buffer_names_the_episode_of_each_sample(kind: Any, buffer: str) -> None:
    replay = {"type": buffer, "capacity": 100} | ({"alpha": 0.6, "beta": 0.4} if "Prior" in buffer else {})
    algorithm = explore(config(kind, replay_buffer_config=replay), "cae").build()
    ours = connector(algorithm)
    whole = [episode(5, continuous=kind is SACConfig) for _ in range(2)]
    algorithm.local_replay_buffer.add(deepcopy(whole))
    for _ in range(20):
        ours(
            episodes=algorithm.local_replay_buffer.sample(4, sample_episodes=True, n_step=1, beta=0.4),
            batch={},
        )
    assert set(ours.seen) == {each.id_ for each in whole}
    assert sum(steps.bit_count() for steps in ours.seen.values()) == 10  # 80 samples of 10 transitions
    algorithm.stop()


def test_alpha_from_the_scales_of_rewards_and_bonuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_alpha, "WARMUP", 10)
    algorithm = explore(config(PPOConfig, gamma=0.8), "cae", alpha="auto").build()
    ours, rule = connector(algorithm), _alpha.Alpha("auto", 0.8)
    observe, expected = ours._observe, list[float]()

    def look(episodes: list[Any], chunks: list[Any], bonuses: list[Any]) -> None:
        observe(episodes, chunks, bonuses)
        for chunk, bonus in zip(chunks, bonuses, strict=True):
            column = torch.from_numpy(bonus)[:, None]
            rule.observe(torch.ones_like(column), column, chunk.episode_start[:, None], apart=True)
        expected.extend(rule.value * np.concatenate(bonuses))

    monkeypatch.setattr(ours, "_observe", look)
    seen, _ = watched(algorithm)
    result = algorithm.train()
    assert ours.alpha == pytest.approx(rule.value) and ours.alpha != _alpha.RATIO
    assert result["learners"]["explore"]["alpha"] == pytest.approx(ours.alpha)
    paid = np.concatenate([episode.get_rewards() for episode in seen]) - 1.0
    np.testing.assert_allclose(paid, expected, rtol=1e-6)
    algorithm.stop()


def test_exploring_twice_changes_the_explorer() -> None:
    twice = explore(explore(config(DQNConfig), "cae", alpha=0.1), "rnd", alpha=0.3)
    assert len(twice.callbacks_on_algorithm_init) == 1
    algorithm = twice.build()
    assert connector(algorithm).alpha == 0.3 and type(connector(algorithm).explorer).__name__ == "RND"
    algorithm.stop()


@pytest.mark.parametrize(("kind", "explorer"), [(PPOConfig, "cae_plus"), (DQNConfig, "cae")])
def test_a_checkpoint_holds_the_memory(kind: Any, explorer: str, tmp_path: Path) -> None:
    made = explore(config(kind), explorer, alpha=0.3)
    algorithm, again = made.copy().build(), made.copy().build()
    for _ in range(3):
        algorithm.train()
    algorithm.save_to_path(tmp_path / "checkpoint")
    again.restore_from_path(tmp_path / "checkpoint")
    old, new = connector(algorithm), connector(again)
    assert torch.equal(old.explorer.gram.matrix(), new.explorer.gram.matrix())
    assert old.explorer.scaler.moments == new.explorer.scaler.moments
    assert old.seen == new.seen and bool(old.seen) == (kind is DQNConfig)
    for one, other in zip(old.explorer.learned(), new.explorer.learned(), strict=True):
        assert torch.equal(one, other)
        steps = [x.training.optimizer.state[p]["step"] for x, p in ((old, one), (new, other))]
        assert steps[0] == steps[1] > 0
    algorithm.stop()
    again.stop()


def gram_of(ours: BonusConnector, episodes: list[Any]) -> torch.Tensor:
    """λI + Σφφᵀ over all steps of these episodes."""
    steps = [ours._transition(e) for e in episodes]
    phi = torch.cat([ours.explorer.phi(x.obs, x.action, x.next_obs) for x in steps]).detach().double()
    return torch.eye(phi.shape[1], dtype=torch.float64) + phi.T @ phi


def test_two_env_runners_feed_one_memory_and_one_may_die() -> None:
    made = explore(config(PPOConfig, runners=2, lr=0.0), "cae", alpha=0.3)
    algorithm = made.fault_tolerance(restart_failed_env_runners=True).build()
    seen, extrinsic = watched(algorithm)
    ours = connector(algorithm)
    algorithm.train()
    assert extrinsic == {2.0, 3.0}  # 1 + the index of the runner: steps of both
    torch.testing.assert_close(ours.explorer.gram.matrix()[0], gram_of(ours, seen))
    before = len(seen)
    extrinsic.clear()
    actors = algorithm.env_runner_group._worker_manager.actors()
    assert len(actors) == 2
    ray.kill(next(iter(actors.values())), no_restart=False)
    for _ in range(2):
        algorithm.train()
    assert (
        len(seen) > before and extrinsic
    )  # training went on, and the memory holds the steps from before and after
    torch.testing.assert_close(ours.explorer.gram.matrix()[0], gram_of(ours, seen))
    algorithm.stop()


@pytest.mark.parametrize(
    ("kind", "explorer"), [(IMPALAConfig, "cae_plus"), (APPOConfig, "cae"), (IMPALAConfig, "e3b")]
)
def test_asynchronous_algorithms(kind: Any, explorer: str) -> None:
    algorithm = explore(config(kind, runners=1), explorer, alpha=0.3).build()
    ours = connector(algorithm)
    before = [weight.clone() for weight in ours.explorer.learned()]
    for _ in range(30):
        result = algorithm.train()
        if ours.newest is not None and "explore" in result["learners"]:
            break
    assert result["learners"]["explore"]["bonus"] >= 0
    assert float(ours.explorer.gram.effective_dimension()) > 0
    assert all(not torch.equal(*pair) for pair in zip(before, ours.explorer.learned(), strict=True))
    algorithm.stop()


def test_several_learners_merge_their_memories() -> None:
    made = explore(config(PPOConfig, lr=0.0).learners(num_learners=2), "cae", alpha=0.3)
    algorithm = made.build()
    algorithm.train()

    def look(learner: Any) -> Any:
        ours = learner.bonus_connector
        steps = ours.newest
        phi = ours.explorer.phi(steps.obs, steps.action, steps.next_obs).detach().double()
        return ours.explorer.gram.matrix()[0].numpy(), (phi.T @ phi).numpy()

    (one, own1), (other, own2) = (result.get() for result in algorithm.learner_group.foreach_learner(look))
    np.testing.assert_allclose(one, other, atol=1e-8)
    np.testing.assert_allclose(one, np.eye(len(one)) + own1 + own2, atol=1e-5)
    algorithm.stop()


def test_the_audit_passes() -> None:
    algorithm = explore(config(PPOConfig), "cae", alpha=0.2).build()
    seen, _ = watched(algorithm)
    bonuses: list[Any] = []
    ours = connector(algorithm)
    new = ours._new
    ours._new = lambda *args: bonuses.append(new(*args)) or bonuses[-1]  # type: ignore[method-assign]
    algorithm.train()
    env = algorithm.env_runner.env.unwrapped.envs[0]
    while not isinstance(env, Recorder):
        env = env.env
    taken = [np.asarray(e.get_observations()) for e in seen]
    record = Record(
        alpha=0.2,
        bonus=np.concatenate(bonuses)[:, None],
        stored_reward=np.concatenate([e.get_rewards() for e in seen])[:, None],
        obs=np.concatenate([x[:-1] for x in taken])[:, None],
        next_obs=np.concatenate([x[1:] for x in taken])[:, None],
        ended=np.concatenate([[False] * (len(e) - 1) + [bool(e.is_done)] for e in seen])[:, None],
        reported_evaluation=env.returns(),
    )
    found = audit(record, [env], evaluation=[env])
    assert not found.problems, str(found)
    assert sum(bool(finding.passed) for finding in found) >= 4
    algorithm.stop()


def test_what_is_refused() -> None:
    with pytest.raises(critex.UserError, match="complete_episodes"):
        explore(config(PPOConfig), "ride")
    with pytest.raises(critex.UserError, match="complete_episodes"):
        explore(config(PPOConfig), "cae", strategy="thompson", thompson_hold=True)
    with pytest.raises(critex.UserError, match="mixes episodes"):
        explore(config(DQNConfig), "e3b")
    with pytest.raises(critex.UserError, match="mixes episodes"):
        explore(config(DQNConfig), "rnd+ride")
    with pytest.raises(critex.UserError, match="n_step=1"):
        explore(config(DQNConfig, n_step=3), "cae")
    with pytest.raises(critex.UserError, match="several Learners"):
        explore(config(PPOConfig).learners(num_learners=2), "rnd")
    with pytest.raises(critex.UserError, match="aggregator"):
        explore(config(IMPALAConfig).learners(num_aggregator_actors_per_learner=1), "cae")
    for replayed_or_shared in (config(SACConfig), config(PPOConfig).learners(num_learners=2)):
        with pytest.raises(critex.UserError, match="alpha='auto' needs all episodes in one Learner"):
            explore(replayed_or_shared, "cae", alpha="auto")
    with pytest.raises(critex.UserError, match="AlgorithmConfig"):
        explore({}, "cae")
    whole = config(PPOConfig).env_runners(batch_mode="complete_episodes")
    algorithm = explore(whole, "counts", alpha=1.0, scope="episodic", kind="first_visit").build()
    algorithm.train()
    algorithm.stop()
