"""The Learner hook inside RLlib. RLlib pins another gymnasium, so this runs in an environment of its own."""

from __future__ import annotations

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
from critex.plugins.rllib import explore

from .line import Line

MODEL = {"fcnet_hiddens": [16, 16], "head_fcnet_hiddens": []}


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Any:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def config(kind: type[Any], runners: int = 0, **training: Any) -> Any:
    continuous = kind is SACConfig
    settings: dict[Any, dict[str, Any]] = {
        PPOConfig: {"train_batch_size": 64, "minibatch_size": 32, "num_epochs": 1},
        DQNConfig: {"train_batch_size": 8, "num_steps_sampled_before_learning_starts": 20},
        SACConfig: {"train_batch_size": 8, "num_steps_sampled_before_learning_starts": 20},
        IMPALAConfig: {"train_batch_size": 40},
        APPOConfig: {"train_batch_size": 40},
    }
    if kind in (IMPALAConfig, APPOConfig):
        runners = max(runners, 1)
    register_env("line", lambda _: Line(continuous=continuous))
    return (
        kind()
        .environment("line")
        .env_runners(num_env_runners=runners, rollout_fragment_length="auto" if kind is PPOConfig else 10)
        .training(**(settings[kind] | training))
        .rl_module(model_config=MODEL)
        .debugging(seed=0)
    )


def piece(algorithm: Any) -> Any:
    return algorithm.learner_group._learner.explorer_piece


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig, SACConfig])
@pytest.mark.parametrize("explorer", ["cae", "rnd"])
def test_every_algorithm_takes_the_explorer(kind: Any, explorer: str) -> None:
    algorithm = explore(config(kind), explorer, alpha=0.3).build()
    for _ in range(4):
        result = algorithm.train()
    assert set(np.unique(result["env_runners"]["episode_return_max"])) <= {3.0, 4.0, 5.0}  # extrinsic
    if explorer == "cae":
        assert piece(algorithm).explorer.gram.log_det() > 0
    algorithm.stop()


def episode(steps: int, started: int = 0) -> SingleAgentEpisode:
    rng = np.random.default_rng(steps)
    return SingleAgentEpisode(
        observations=list(rng.normal(size=(steps + 1, 3)).astype(np.float32)),
        actions=list(rng.integers(2, size=steps)),
        rewards=[1.0] * steps,
        terminated=True,
        t_started=started,
        len_lookback_buffer=0,
    )


def test_the_bonus_is_ours() -> None:
    algorithm = explore(config(PPOConfig), "cae", alpha=0.5).build()
    module = piece(algorithm).module
    episodes = [episode(7), episode(4)]

    def embed(obs: torch.Tensor) -> torch.Tensor:
        return module.encoder({"obs": obs})["encoder_out"]["critic"]

    ours = critex.CAE(embed, alpha=0.5, embedding="state_and_action", num_actions=2)
    expected = [
        [
            1.0 + ours(obs[None], np.array([action]))[0]
            for obs, action in zip(e.observations[:-1], e.actions, strict=True)
        ]
        for e in episodes
    ]
    episodes[0].to_numpy()
    episodes[0].rewards.data.setflags(write=False)  # as from Ray's object store
    piece(algorithm)(episodes=episodes, batch={})
    for e, mixed in zip(episodes, expected, strict=True):
        np.testing.assert_allclose(e.get_rewards(), mixed, atol=1e-6)
    algorithm.stop()


def test_a_replayed_transition_joins_the_memory_once() -> None:
    algorithm = explore(config(DQNConfig), "cae", alpha=1.0).build()
    bonus = piece(algorithm)
    first = episode(5)
    again = SingleAgentEpisode(
        id_=first.id_, observations=list(first.observations), actions=list(first.actions), rewards=[1.0] * 5,
        terminated=True, len_lookback_buffer=0,
    )  # fmt: skip
    bonus(episodes=[first], batch={})
    matrix = bonus.explorer.gram.matrix()
    bonus(episodes=[again], batch={})
    assert torch.equal(bonus.explorer.gram.matrix(), matrix)
    assert (np.asarray(again.get_rewards()) > 1.0).all()
    algorithm.stop()


def test_a_checkpoint_holds_the_memory(tmp_path: Path) -> None:
    made = explore(config(PPOConfig), "cae", alpha=0.3)
    algorithm = made.copy().build()
    algorithm.train()
    algorithm.save_to_path(tmp_path / "checkpoint")
    again = made.copy().build()
    again.restore_from_path(tmp_path / "checkpoint")
    old, new = piece(algorithm).explorer, piece(again).explorer
    assert torch.equal(old.gram.matrix(), new.gram.matrix()) and old.scaler.moments == new.scaler.moments
    algorithm.stop()
    again.stop()


def test_two_env_runners_feed_one_memory_and_one_may_die() -> None:
    made = explore(config(PPOConfig, runners=2), "cae", alpha=0.3)
    algorithm = made.fault_tolerance(restart_failed_env_runners=True).build()
    algorithm.train()
    gram = piece(algorithm).explorer.gram
    before = float(gram.log_det())
    actors = algorithm.env_runner_group._worker_manager.actors()
    assert len(actors) == 2 and before > 0
    ray.kill(next(iter(actors.values())), no_restart=False)
    for _ in range(3):
        algorithm.train()
    assert float(gram.log_det()) > before
    algorithm.stop()


@pytest.mark.parametrize("kind", [IMPALAConfig, APPOConfig])
def test_asynchronous_algorithms(kind: Any) -> None:
    algorithm = explore(config(kind, runners=2), "cae", alpha=0.3).build()
    for _ in range(30):
        algorithm.train()
        if float(piece(algorithm).explorer.gram.log_det()) > 0:
            break
    assert float(piece(algorithm).explorer.gram.log_det()) > 0
    algorithm.stop()


def test_what_is_refused() -> None:
    with pytest.raises(critex.UserError, match="join the critic"):
        explore(config(PPOConfig), "cae_plus")
    with pytest.raises(critex.UserError, match="complete_episodes"):
        explore(config(PPOConfig), "cae", scope="episodic")
    with pytest.raises(critex.UserError, match="complete_episodes"):
        explore(config(DQNConfig), "ride")
    with pytest.raises(critex.UserError, match="n_step=1"):
        explore(config(DQNConfig, n_step=3), "cae")
    with pytest.raises(critex.UserError, match="one Learner"):
        explore(config(PPOConfig).learners(num_learners=2), "cae")
    whole = config(PPOConfig).env_runners(batch_mode="complete_episodes")
    algorithm = explore(whole, "counts", alpha=1.0, scope="episodic", kind="first_visit").build()
    algorithm.train()
    algorithm.stop()
