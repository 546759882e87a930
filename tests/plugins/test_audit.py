"""The audit passes sound loops, ours and the plug-ins', and finds every planted defect."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import critex
from critex.algorithms import algorithm_module
from critex.data import Transition
from critex.errors import UserError
from critex.plugins.audit import Record, Recorder, audit, check_seeds
from critex.run import Run

from .line import Line

T, N, ALPHA, GAMMA, LAMBDA = 20, 2, 0.5, 0.9, 0.8


def loop(**defects: bool) -> tuple[Record, list[Recorder], list[Recorder], dict[int, Any]]:
    """An on-policy loop of two environments in plain NumPy, with one defect planted on demand."""
    rng = np.random.default_rng(0)
    envs = [Recorder(Line()) for _ in range(N)]
    obs = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)])
    columns: dict[str, list[Any]] = {name: [] for name in ("obs", "next_obs", "reward", "ended", "bonus")}
    for _ in range(T):
        after, reward, ended, following = [], [], [], []
        for env in envs:
            new, r, terminated, truncated, _ = env.step(int(rng.integers(2)))
            over = terminated or truncated
            first = env.reset()[0] if over else new
            final = np.zeros_like(new) if over and defects.get("zero_final") else new
            after.append(first if defects.get("reset_for_final") else final)
            reward.append(r)
            ended.append(over)
            following.append(first)
        for name, value in zip(columns, (obs, after, reward, ended, rng.random(N)), strict=True):
            columns[name].append(np.array(value))
        obs = np.stack(following)
    data = {name: np.stack(values) for name, values in columns.items()}
    alpha = ALPHA * (1e6 if defects.get("huge_bonus") else 1e-9 if defects.get("tiny_bonus") else 1)
    mixed = data["reward"] + alpha * data["bonus"]
    values, last = rng.random((T, N)), rng.random(N)
    returns = np.zeros((T, N))
    tail, following = np.zeros(N), last
    source = data["reward"] if defects.get("late_bonus") else mixed
    for t in reversed(range(T)):
        going = 1.0 - data["ended"][t]
        tail = source[t] + GAMMA * going * following - values[t] + GAMMA * LAMBDA * going * tail
        returns[t], following = tail + values[t], values[t]
    stored = data["reward"] if defects.get("copied_before") else mixed
    stored = stored + alpha * data["bonus"] if defects.get("twice") else stored

    watcher = Recorder(Line())
    watcher.reset()
    watcher.step(0)  # cut short by the next reset
    reported = []
    for _ in range(3):
        watcher.reset()
        total, over = 0.0, False
        while not over:
            _, r, over, _, _ = watcher.step(0)
            total += r + (0.3 if defects.get("bonus_in_evaluation") else 0.0)
        reported.append(total)

    phi = rng.random((30, 4))
    moved = phi + (1.0 if defects.get("drift") else 0.001) * rng.random(phi.shape)
    record = Record(
        alpha=alpha, bonus=data["bonus"], stored_reward=stored, obs=data["obs"], next_obs=data["next_obs"],
        ended=data["ended"], returns=returns, values=values, last_values=last, gamma=GAMMA, gae_lambda=LAMBDA,
        reported_evaluation=reported, phi_before=phi, phi_after=moved, phi_steps=100, memory_steps=1000,
    )  # fmt: skip
    levels = {
        seed: np.random.default_rng(0 if defects.get("same_seed") else seed).random((4, 3)) for seed in (1, 2)
    }
    return record, envs, [watcher], levels


def report(**defects: bool) -> Any:
    record, envs, watchers, levels = loop(**defects)
    return audit(record, envs, evaluation=watchers, levels=levels)


def test_a_sound_loop_passes_every_check() -> None:
    found = report()
    assert all(finding.passed for finding in found), str(found)
    assert len(found) == 8


@pytest.mark.parametrize(
    ("defect", "checks", "sentence"),
    [
        ("late_bonus", ["bonus in returns"], "before the bonus was added"),
        ("copied_before", ["bonus stored", "bonus in returns"], "after the transition was copied"),
        ("twice", ["bonus stored", "bonus in returns"], "added twice"),
        ("reset_for_final", ["pairs", "final observations"], "first state of the next episode"),
        ("zero_final", ["final observations"], "not those the environment returned"),
        ("bonus_in_evaluation", ["evaluation"], "such as the bonus"),
        ("same_seed", ["seeds"], "seeds 1 and 2 play exactly the same levels"),
        ("huge_bonus", ["bonus scale"], "drowns out the reward"),
        ("tiny_bonus", ["bonus scale"], "too small to matter"),
        ("drift", ["drift of φ"], "features that no longer exist"),
    ],
)
def test_a_planted_defect_is_found(defect: str, checks: list[str], sentence: str) -> None:
    found = report(**{defect: True})
    assert found.problems == checks, str(found)
    assert sentence in str(found)


def test_a_record_of_other_steps_than_the_recorders_is_refused() -> None:
    """As with gymnasium's default autoreset, where the step after an end only resets and no recorder sees it."""
    record, envs, _, _ = loop()
    for env in envs:
        del env.reward[:-5], env.ended[:-5], env.next_obs[:-5]
    with pytest.raises(UserError, match="20 steps are not the last ones of recorder 0; .*SAME_STEP"):
        audit(record, envs)
    record, envs, _, _ = loop()
    envs[1].ended.append(True)
    envs[1].reward.append(0.0)
    with pytest.raises(UserError, match="of recorder 1"):
        audit(record, envs)


def test_shapes_that_do_not_fit_are_refused() -> None:
    """Arrays [T] were broadcast to [T, T], with a wrong verdict."""
    good: dict[str, Any] = {name: np.ones((5, 1)) for name in ("bonus", "stored_reward", "ended")}
    record = Record(alpha=0.2, **good)
    recorder = Recorder(gym.make("CartPole-v1"))
    for bad, message in (
        ({"bonus": np.ones(5)}, r"bonus must be \[T, N\], got \[5\]; a single environment has N = 1"),
        (
            {"stored_reward": np.ones(5)},
            r"the shape of stored_reward must begin with that of bonus, \[5, 1\]; got \[5\]",
        ),
        (
            {"obs": {"a": np.ones((4, 1))}, "next_obs": np.ones((5, 1))},
            r"the shape of obs must begin with that of bonus, \[5, 1\]",
        ),
        ({"alpha": np.ones(5)}, r"alpha must be a number or \[T, 1\], here \[5, 1\]; got \[5\]"),
    ):
        with pytest.raises(UserError, match=message):
            audit(Record(**{"alpha": 0.2, **good, **bad}))
    with pytest.raises(UserError, match="2 recorders for a record of 1 environments"):
        audit(record, [recorder, recorder])
    lists = Record(alpha=0.2, **{name: x.tolist() for name, x in good.items()})
    assert str(audit(lists)) == str(audit(record))


def test_what_was_not_given_is_said() -> None:
    record, *_ = loop()
    bare = Record(alpha=record.alpha, bonus=record.bonus, stored_reward=record.stored_reward)
    found = audit(bare)
    assert [finding.passed for finding in found] == [None] * 8
    assert all(line.startswith("not checked: ") for line in str(found).splitlines())


def test_no_reward_yet_is_no_verdict() -> None:
    record, envs, *_ = loop()
    for env in envs:
        env.reward = [0.0] * len(env.reward)
    found = {finding.check: finding for finding in audit(record, envs)}
    assert found["bonus scale"].passed is None and "no reward" in found["bonus scale"].sentence


def test_pairs_out_of_order_are_found() -> None:
    record, envs, *_ = loop()
    shuffled = np.asarray(record.next_obs)[::-1].copy()
    assert "pairs" in audit(replace(record, next_obs=shuffled), envs).problems


# Our own algorithms.

RECORDERS: list[Recorder] = []


def recorded_line(**keywords: Any) -> gym.Env[Any, Any]:
    RECORDERS.append(Recorder(Line(random_start=True, **keywords)))
    return RECORDERS[-1]


@pytest.fixture
def line_id() -> Any:
    RECORDERS.clear()
    gym.register("AuditLine-v0", entry_point=recorded_line)
    gym.register("AuditContinuousLine-v0", entry_point=recorded_line, kwargs={"continuous": True})
    yield {"discrete": "AuditLine-v0", "continuous": "AuditContinuousLine-v0"}
    gym.registry.pop("AuditLine-v0")
    gym.registry.pop("AuditContinuousLine-v0")


def train(name: str, env: str, path: Path, seed: int = 0, **options: Any) -> list[dict[str, Any]]:
    """Train one of our algorithms with CAE on two recorded environments; returns the lines of its metrics."""
    module = algorithm_module(name)
    quiet = {"out": str(path / f"run{seed}"), "tensorboard": False, "progress": False, "eval_episodes": 2}
    cfg = module.Config(env=env, num_envs=2, seed=seed, explorer="cae", alpha=0.5, **quiet, **options)
    with Run.create(name, cfg) as run:
        module.train(cfg, run)
    return [json.loads(line) for line in (path / f"run{seed}" / "metrics.jsonl").read_text().splitlines()]


def record_of(rollout: Transition, stored: Any, **more: Any) -> Record:
    columns = {name: getattr(rollout, name).numpy() for name in ("obs", "next_obs", "ended", "bonus")}
    return Record(alpha=0.5, stored_reward=np.asarray(stored), **columns, **more)


def check(record: Record, lines: list[dict[str, Any]], passed: int) -> None:
    """The audit of two training environments, and of the evaluation in the environments made after them."""
    evaluation = [line for line in lines if line["kind"] == "eval"][-1]
    record.reported_evaluation = evaluation["returns"]
    found = audit(record, RECORDERS[:2], evaluation=[r for r in RECORDERS[2:] if r.reward])
    assert not found.problems, str(found)
    assert sum(bool(finding.passed) for finding in found) == passed, str(found)


SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"steps": 32, "rollout": 16, "minibatches": 2, "epochs": 1, "normalize_obs": False, "normalize_reward": False},
    "ppo_recurrent": {"steps": 32, "rollout": 16, "epochs": 1, "hidden": (8,), "core_width": 8},
    "impala": {"steps": 32, "unroll": 16, "hidden": (8,)},
    "dqn": {"steps": 40, "learning_starts": 10, "batch_size": 4, "hidden": (8, 8)},
    "sac": {"steps": 40, "learning_starts": 10, "batch_size": 4, "hidden": (8, 8)},
    "td3": {"steps": 40, "learning_starts": 10, "batch_size": 4, "hidden": (8, 8)},
    "dsac": {"steps": 40, "learning_starts": 10, "batch_size": 4, "hidden": (8, 8), "steps_per_update": 4},
}  # fmt: skip


@pytest.mark.parametrize("name", ["ppo", "ppo_recurrent", "impala"])
def test_our_on_policy_algorithms(
    name: str, line_id: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = algorithm_module(name)
    seen: dict[str, Any] = {}
    update, clip_reward = module.Agent.update, module.clip_reward

    def watched_update(agent: Any, rollout: Any, *rest: Any) -> Any:
        steps = getattr(rollout, "steps", rollout)  # IMPALA's unroll holds the steps
        seen["steps"] = steps

        def phi() -> Any:
            return agent.embedding(steps.obs, steps.action).detach().flatten(0, 1).numpy().copy()

        seen["phi_before"] = phi()
        result = update(agent, rollout, *rest)
        seen["phi_after"] = phi()
        return result

    def watched_clip(
        reward: Any, cfg: Any
    ) -> Any:  # what every algorithm does with r̃ before it learns from it
        seen["stored"] = reward
        return clip_reward(reward, cfg)

    monkeypatch.setattr(module.Agent, "update", watched_update)
    monkeypatch.setattr(module, "clip_reward", watched_clip)
    if name != "impala":  # whose targets are V-trace's
        gae = module.gae

        def watched_gae(reward: Any, value: Any, last: Any, *rest: Any, **keywords: Any) -> Any:
            advantage, target = gae(reward, value, last, *rest, **keywords)
            seen.update(values=value, last_values=last, returns=target)
            return advantage, target

        monkeypatch.setattr(module, "gae", watched_gae)
    lines = train(name, line_id["discrete"], tmp_path, eval_every=32, **SMALL[name])
    arrays = {k: seen[k].detach().numpy() for k in ("values", "last_values", "returns") if k in seen}
    drift = {k: seen[k] for k in ("phi_before", "phi_after")} | {"phi_steps": 32, "memory_steps": 32}
    record = record_of(seen["steps"], seen["stored"], **arrays, **drift)
    check(record, lines, passed=6 if name == "impala" else 7)  # all but the seeds


@pytest.mark.parametrize("name", ["dqn", "sac", "td3", "dsac"])
def test_our_off_policy_algorithms(
    name: str, line_id: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = algorithm_module(name)
    replays: list[Any] = []
    batches: list[Any] = []
    add, update, clip_reward = module.Replay.add, module.Agent.update, module.clip_reward

    def watched_add(replay: Any, transition: Transition) -> Any:
        replays.append(replay)
        return add(replay, transition)

    def watched_update(agent: Any, batch: Any, *rest: Any, **keywords: Any) -> Any:
        batches.append(batch)
        return update(agent, batch, *rest, **keywords)

    def watched_clip(
        reward: Any, cfg: Any
    ) -> Any:  # the mixture is made of the sampled columns, in the learner
        torch.testing.assert_close(reward, batches[-1].reward + 0.5 * batches[-1].bonus.to(reward))
        batches.append(batches[-1])
        return clip_reward(reward, cfg)

    monkeypatch.setattr(module.Replay, "add", watched_add)
    monkeypatch.setattr(module.Agent, "update", watched_update)
    monkeypatch.setattr(module, "clip_reward", watched_clip)
    env = line_id["discrete" if name == "dqn" else "continuous"]
    lines = train(name, env, tmp_path, eval_every=40, **SMALL[name])
    assert len(batches) > 2
    data = replays[-1].all().map(lambda x: x.unflatten(0, (-1, 2)))  # [T, N]
    check(record_of(data, data.reward + 0.5 * data.bonus), lines, passed=5)


def test_two_seeds_of_ours_play_different_levels(line_id: Any, tmp_path: Path) -> None:
    levels = {}
    for seed in (1, 2):
        RECORDERS.clear()
        train("dqn", line_id["discrete"], tmp_path, seed, eval_every=0, **SMALL["dqn"])
        levels[seed] = [first for recorder in RECORDERS for first in recorder.firsts]
    assert check_seeds(levels).passed


# The plug-ins.


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN", "SAC"])
def test_stable_baselines(name: str, truncate: bool) -> None:
    """Where an episode is truncated, PPO and A2C add γV to the stored reward."""
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv

    def make() -> list[Recorder]:
        return [Recorder(Line(continuous=name == "SAC", truncate=truncate)) for _ in range(2)]

    envs, evaluation = make(), make()[:1]
    options = {"n_steps": 16} if name in ("PPO", "A2C") else {"learning_starts": 10, "batch_size": 4}
    model = getattr(sb3, name)(
        "MlpPolicy", DummyVecEnv([lambda env=env: env for env in envs]), seed=0, **options
    )
    explorer = critex.sb3.ExplorerCallback("cae", alpha=0.2)
    watch = critex.sb3.AuditCallback(explorer)
    model.learn(64, callback=[explorer, watch])
    returns, _ = evaluate_policy(
        model,
        DummyVecEnv([lambda: evaluation[0]]),
        n_eval_episodes=3,
        return_episode_rewards=True,
        warn=False,
    )
    found = audit(replace(watch.record(), reported_evaluation=returns), envs, evaluation=evaluation)
    assert not found.problems, str(found)
    assert sum(bool(finding.passed) for finding in found) >= 4


def test_a_replay_buffer_without_next_observations() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    options = {
        "optimize_memory_usage": True,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    model = sb3.DQN("MlpPolicy", env := Recorder(Line()), learning_starts=10, batch_size=4, **options)
    explorer = critex.sb3.ExplorerCallback("cae", alpha=0.2)
    watch = critex.sb3.AuditCallback(explorer)
    model.learn(32, callback=[explorer, watch])
    found = {finding.check: finding.passed for finding in audit(watch.record(), [env])}
    assert found["bonus stored"] is True and found["pairs"] is None


def test_torchrl() -> None:
    pytest.importorskip("torchrl")
    from torchrl.envs import GymWrapper, SerialEnv, TransformedEnv

    envs = [Recorder(Line()) for _ in range(2)]
    value = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    transform = critex.torchrl.ExplorerTransform("cae", 0.5, embed=critex.last_hidden(value))
    wrapped = SerialEnv(2, [lambda env=env: GymWrapper(env) for env in envs])
    data = TransformedEnv(wrapped, transform).rollout(30, break_when_any_done=False).transpose(0, 1)
    after = data["next"]
    record = Record(
        alpha=0.5,
        bonus=after["bonus"].squeeze(-1).numpy(),
        stored_reward=after["reward"].squeeze(-1).numpy(),
        obs=data["observation"].numpy(),
        next_obs=after["observation"].numpy(),
        ended=after["done"].squeeze(-1).numpy(),
    )
    found = audit(record, envs)
    assert not found.problems, str(found)
    assert sum(bool(finding.passed) for finding in found) >= 4
