"""The audit passes sound loops, ours and the plug-ins', and finds every planted defect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import critex
from critex.algorithms import dqn, ppo
from critex.data import Transition
from critex.plugins.audit import Record, Recorder, audit
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
        ("huge_bonus", ["bonus scale"], "drowns the reward"),
        ("tiny_bonus", ["bonus scale"], "too small to matter"),
        ("drift", ["drift of φ"], "features that no longer exist"),
    ],
)
def test_a_planted_defect_is_found(defect: str, checks: list[str], sentence: str) -> None:
    found = report(**{defect: True})
    assert found.problems == checks, str(found)
    assert sentence in str(found)


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
    RECORDERS.append(Recorder(Line(**keywords)))
    return RECORDERS[-1]


@pytest.fixture
def line_id() -> Any:
    RECORDERS.clear()
    gym.register("AuditLine-v0", entry_point=recorded_line)
    yield "AuditLine-v0"
    gym.registry.pop("AuditLine-v0")


def quiet(path: Path) -> dict[str, Any]:
    return {"out": str(path / "run"), "tensorboard": False, "progress": False, "eval_every": 0}


def record_of(rollout: Transition, alpha: float, stored: Any, **more: Any) -> Record:
    columns = {name: getattr(rollout, name).numpy() for name in ("obs", "next_obs", "ended", "bonus")}
    return Record(alpha=alpha, stored_reward=np.asarray(stored), **columns, **more)


def test_our_ppo(line_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    gae, update = ppo.gae, ppo.PPO.update

    def watched_gae(reward: Any, value: Any, last: Any, *rest: Any, **keywords: Any) -> Any:
        advantage, target = gae(reward, value, last, *rest, **keywords)
        seen.update(stored=reward, values=value, last_values=last, returns=target)
        return advantage, target

    def watched_update(agent: Any, rollout: Any, *rest: Any) -> Any:
        seen["rollout"] = rollout
        return update(agent, rollout, *rest)

    monkeypatch.setattr(ppo, "gae", watched_gae)
    monkeypatch.setattr(ppo.PPO, "update", watched_update)
    cfg = ppo.Config(
        env=line_id, steps=32, num_envs=2, rollout=16, minibatches=2, epochs=1, explorer="cae", alpha=0.5,
        normalize_obs=False, normalize_reward=False, **quiet(tmp_path),
    )  # fmt: skip
    with Run.create("ppo", cfg) as run:
        ppo.train(cfg, run)
    arrays = {name: seen[name].detach().numpy() for name in ("values", "last_values", "returns")}
    record = record_of(seen["rollout"], 0.5, seen["stored"], gae_lambda=0.95, **arrays)
    found = audit(record, RECORDERS[:2])
    assert not found.problems, str(found)
    assert sum(bool(finding.passed) for finding in found) >= 4


def test_our_dqn(line_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[Any] = []
    add = dqn.Replay.add

    def watched_add(replay: Any, transition: Transition) -> Any:
        replays.append(replay)
        return add(replay, transition)

    monkeypatch.setattr(dqn.Replay, "add", watched_add)
    cfg = dqn.Config(
        env=line_id, steps=40, num_envs=2, learning_starts=10, batch_size=4, explorer="cae", alpha=0.5,
        **quiet(tmp_path),
    )  # fmt: skip
    with Run.create("dqn", cfg) as run:
        dqn.train(cfg, run)
    data = replays[-1].all().map(lambda x: x.unflatten(0, (-1, 2)))  # [T, N]
    found = audit(record_of(data, 0.5, data.reward + 0.5 * data.bonus), RECORDERS[:2])
    assert not found.problems, str(found)


# The plug-ins.


@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN", "SAC"])
def test_stable_baselines(name: str) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv

    def make() -> list[Recorder]:
        return [Recorder(Line(continuous=name == "SAC")) for _ in range(2)]

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
