import gc
import json
import multiprocessing as mp
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from critex.data import tree_leaves
from critex.envs import Envs, vector, workers
from critex.envs.workers import SharedArrays, Worker, measures_of, position_of, write
from critex.errors import UserError
from critex.presets import default_config


class Odd(gym.Env[Any, Any]):
    """A dict of observations, random rewards; `fault` makes it misbehave at step 5, `place` is its position."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (4, 3, 3), np.uint8), "v": spaces.Box(-9, 9, (2,), np.float64)}
    )
    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 7, fault: str = "", place: Any = None) -> None:
        self.length, self.fault, self.place = length, fault, place

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        if self.count == 5 and self.fault == "exit":
            os._exit(7)
        if self.count == 5 and self.fault == "raise":
            raise UserError("the door is locked")
        end = self.count >= self.length
        return self._obs(), float(self.np_random.normal() + action), False, end, self._info()

    def _obs(self) -> Any:
        return {"image": self.np_random.integers(0, 255, (4, 3, 3), np.uint8), "v": np.full(2, self.count)}

    def _info(self) -> dict[str, Any]:
        place = (self.count, 1) if self.place is None else self.place
        return {"position": place, "measures": {"coverage": self.count / 10, "cells": np.int64(self.count)}}


@pytest.fixture(autouse=True)
def odd() -> Any:
    gym.register("Odd-v0", Odd)
    yield
    del gym.registry["Odd-v0"]


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for x, y in zip(tree_leaves(a), tree_leaves(b), strict=True))


def play(all_envs: list[Envs], steps: int, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    n = all_envs[0].num_envs
    for _ in range(steps):
        action = torch.randint(2, (n,), generator=generator)
        (first, obs), *others = [envs.step(action) for envs in all_envs]
        for transition, other in others:
            assert same(obs, other)
            assert same(first.asdict(), transition.asdict())
    first_episodes, *rest = [envs.pop_episodes() for envs in all_envs]
    assert first_episodes and all(episodes == first_episodes for episodes in rest)


@pytest.mark.parametrize("env_id", ["Odd-v0", "CartPole-v1"])
def test_every_number_of_workers_gives_the_same_numbers(env_id: str) -> None:
    all_envs = [Envs(env_id, 5, 3, workers) for workers in (1, 2, 3, 5, 9)]
    assert [len(envs._groups) for envs in all_envs] == [1, 2, 3, 5, 5]
    play(all_envs, 60)
    for envs in all_envs:
        envs.close()


def test_a_state_saved_with_some_workers_continues_with_others() -> None:
    saved = Envs("Odd-v0", 4, 1, 2)
    for _ in range(10):
        saved.step(torch.ones(4, dtype=torch.int64))
    restored = [Envs("Odd-v0", 4, 1, workers) for workers in (1, 3)]
    for envs in restored:
        envs.load_state_dict(saved.state_dict())
    play([saved, *restored], 20)


def test_measures_come_with_the_episode() -> None:
    envs = Envs("Odd-v0", 2, 0, 2, length=4)
    for _ in range(4):
        envs.step(torch.zeros(2, dtype=torch.int64))
    (first, second) = (episode.measures for episode in envs.pop_episodes())
    assert first == second == {"coverage": 0.4, "cells": 4} and json.dumps(first)


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({"view": np.zeros((2, 3))}, "no 'door'"),
        ({"view": np.zeros((2, 4)), "door": 0}, r"shape \(2, 4\), its observation_space \(2, 3\)"),
        ({"view": 1.0, "door": 0}, r"shape \(\), its observation_space \(2, 3\)"),
        ({"view": np.zeros((2, 3)), "door": [0]}, r"shape \(1,\), its observation_space \(\)"),
    ],
)
def test_an_observation_that_its_space_does_not_have_is_an_error(obs: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        write({"view": np.zeros((5, 2, 3)), "door": np.zeros(5)}, 0, obs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"success": "yes"}, "must be a dict of numbers, not {'success': 'yes'}"),
        (3.0, "must be a dict of numbers, not 3.0"),
        (None, "must be a dict of numbers, not None"),
        ({"return": 1.0}, "has 'return', which critex writes itself"),
    ],
)
def test_measures_are_numbers_with_names_of_their_own(given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        measures_of({"measures": given})


def test_a_dead_worker_is_one_line() -> None:
    envs = Envs("Odd-v0", 3, 0, 2, fault="exit")
    for _ in range(4):
        envs.step(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(UserError, match=r"runs env 0 of Odd-v0 died \(exit code 7\)"):
        envs.step(torch.zeros(3, dtype=torch.int64))
    envs.close()


def test_an_error_in_a_worker_is_raised_here() -> None:
    envs = Envs("Odd-v0", 2, 0, 2, fault="raise")
    for _ in range(4):
        envs.step(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(UserError, match="the door is locked"):
        envs.step(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(UserError, match="env_workers must be at least 1"):
        Envs("Odd-v0", 2, workers=0)


def processes(envs: Envs) -> list[int]:
    return [group._process.pid for group in envs._groups if isinstance(group, Worker)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_answers_until_it_is_told_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's loop in this process: its commands wait in the pipe, its observations are in shared memory."""
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(workers.signal, "signal", handlers.__setitem__)
    memory = SharedArrays(Odd.observation_space, 3)
    here, far = mp.Pipe()
    here.send(("begin", [(2, 7, [])]))
    for _ in range(5):
        here.send(("step", np.array([1])))
    here.send(("close",))
    workers._serve(far, "Odd-v0", {"fault": "raise"}, 2, 1, memory, os.getppid())
    answers = [here.recv() for _ in range(6)]
    assert [failed for failed, _ in answers] == [False] * 5 + [True]
    assert isinstance(answers[5][1], UserError) and "locked" in str(answers[5][1])
    assert memory.arrays()["v"].tolist() == [[0, 0], [0, 0], [4, 4]]
    assert handlers[signal.SIGINT] is signal.SIG_IGN
    with pytest.raises(SystemExit):
        handlers[signal.SIGTERM]()


def test_a_worker_ends_without_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.signal, "signal", lambda *_: None)
    monkeypatch.setattr(workers, "PATIENCE", 0.0)
    memory = SharedArrays(Odd.observation_space, 1)
    here, far = mp.Pipe()
    workers._serve(far, "Odd-v0", {}, 0, 1, memory, parent=-1)  # another process adopted it
    here.close()
    workers._serve(far, "Odd-v0", {}, 0, 1, memory, os.getppid())  # the other end of the pipe is gone


def test_an_error_that_cannot_be_pickled_keeps_its_traceback() -> None:
    class Local(Exception):
        pass

    error = workers._portable(Local("here"))
    assert type(error) is RuntimeError and "Local: here" in str(error)
    assert workers._portable(KeyError("x")).args == ("x",)


def test_an_error_of_a_worker_says_where_it_was_raised() -> None:
    def fault() -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom") as caught:
        fault()
    error = pickle.loads(pickle.dumps(workers._portable(caught.value)))
    assert "in fault" in "".join(traceback.format_exception(error))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_process_is_left_behind() -> None:
    closed, dropped = Envs("Odd-v0", 2, 0, 2), Envs("Odd-v0", 2, 0, 2)
    pids = processes(closed) + processes(dropped)
    assert len(pids) == 4 and all(map(alive, pids))
    closed.close()
    closed.close()  # twice does no harm
    del dropped
    gc.collect()
    assert not any(map(alive, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_end_when_their_parent_is_killed() -> None:
    code = (
        "import time; from critex.envs import Envs, workers; workers.PATIENCE = 0.1; e = Envs('CartPole-v1', 2, 0, 2);"
        "print(*[g._process.pid for g in e._groups], flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2 and all(map(alive, pids))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 10
        while any(map(alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not any(map(alive, pids))


@pytest.mark.parametrize(
    "place", ["kitchen", 0.5, (0.5, 1.0), {"x": 1}, np.zeros((2, 2), int), (), [1, [2, 3]], None]
)
def test_another_meaning_of_position_is_ignored(place: Any) -> None:
    assert position_of({"position": place}) is None
    if place is not None:
        envs = Envs("Odd-v0", 2, place=place)
        assert envs.step(torch.zeros(2, dtype=torch.int64))[0].info == {}


def test_positions_are_vectors_of_integers() -> None:
    for given, expected in ((3, [3]), ((1, 2), [1, 2]), (np.array([4], np.uint8), [4])):
        found = position_of({"position": given})
        assert found is not None and found.dtype == np.int64 and found.tolist() == expected
    assert position_of({}) is None


def test_the_actions_of_an_endless_episode_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector, "HISTORY", 6)
    envs, action = Envs("Odd-v0", 2, length=10), torch.zeros(2, dtype=torch.int64)
    for _ in range(6):
        envs.step(action)
    assert [len(actions) for actions in envs.state_dict()["actions"]] == [6, 6]
    envs.step(action)
    state = envs.state_dict()
    assert state["actions"] == [None, None]
    fresh = Envs("Odd-v0", 2, length=10)
    with pytest.warns(UserWarning, match="2 of 2 episodes of Odd-v0 had passed 6 steps"):
        fresh.load_state_dict(state)
    assert fresh.step(action)[0].episode_start.all()
    for _ in range(3):
        envs.step(action)
    assert [episode.length for episode in envs.pop_episodes()] == [10, 10]
    fresh.load_state_dict(envs.state_dict())  # the next episode is exact again
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(envs.step(action)[1], fresh.step(action)[1])


def test_shared_arrays_have_the_shapes_of_the_space() -> None:
    memory = SharedArrays(Odd.observation_space, 3)
    memory.arrays()["v"][1] = 5
    assert memory.arrays()["v"].tolist() == [[0, 0], [5, 5], [0, 0]]
    assert memory.arrays()["image"].shape == (3, 4, 3, 3) and memory.arrays()["image"].dtype == np.uint8


@pytest.mark.parametrize(
    "algorithm, options",
    [
        ("ppo", {"rollout": 32, "minibatches": 2, "epochs": 1}),
        ("dqn", {"learning_starts": 40, "batch_size": 16, "buffer_size": 1000}),
    ],
)
def test_training_with_workers_is_training_without(
    algorithm: str, options: dict[str, Any], tmp_path: Path
) -> None:
    from critex.algorithms import algorithm_module
    from critex.run import Run, read_metrics

    lines = []
    for count in (1, 2):
        cfg = default_config(algorithm, "cae", env="CartPole-v1")
        general = {"env": "CartPole-v1", "steps": 256, "num_envs": 4, "env_workers": count, "log_every": 64}
        for name, value in {**general, **options, "out": str(tmp_path / f"{count}")}.items():
            setattr(cfg, name, value)
        cfg.progress = cfg.tensorboard = False
        with Run.create(algorithm, cfg) as run:
            algorithm_module(algorithm).train(cfg, run)
        read = read_metrics(tmp_path / f"{count}")
        lines.append([{k: v for k, v in line.items() if k not in ("time", "sps")} for line in read])
    assert lines[0] == lines[1] and len(lines[0]) > 4
