from __future__ import annotations

import io
import random
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from critex.data import derive_seed
from critex.envs import Envs, Episode
from critex.run import Run, RunConfig, evaluate, preserved_rng, read_metrics, seed_everything
from critex.run.seeding import choose_device, rng_state, set_rng_state


@dataclass
class Fixed:
    """Env i's episodes last i + 1 steps and pay their number: the k-th pays k."""

    num_envs: int
    seed: int
    closed: bool = False

    def __post_init__(self) -> None:
        self.obs = torch.zeros(self.num_envs)
        self.time, self.finished = 0, []

    def step(self, action: torch.Tensor) -> tuple[None, torch.Tensor]:
        self.time += 1
        for i in range(self.num_envs):
            if self.time % (i + 1) == 0:
                self.finished.append(Episode(i, i + 1, float(self.time // (i + 1))))
        return None, self.obs

    def pop_episodes(self) -> list[Episode]:
        finished, self.finished = self.finished, []
        return finished

    def close(self) -> None:
        self.closed = True


def test_measures_that_only_some_episodes_have() -> None:
    """The mean is that of the episodes that have it, also if the first has not."""

    class Sometimes(Fixed):
        def pop_episodes(self) -> list[Episode]:
            return [
                replace(e, measures={"success": e.return_} if e.return_ > 1 else {})
                for e in super().pop_episodes()
            ]

    result = evaluate(lambda obs: obs, lambda num_envs, *, seed: Sometimes(num_envs, seed), 30, seed=0)
    assert result["successs"] == [2.0, 3.0] * 10 and result["success"] == 2.5


def test_each_env_plays_its_share() -> None:
    # 23 episodes on 10 envs: 3 each for the first three, 2 each for the others, however many the quick ones finish.
    made = []

    def make(num_envs: int, *, seed: int) -> Fixed:
        made.append(Fixed(num_envs, seed))
        return made[-1]

    result = evaluate(lambda obs: obs, make, 23, seed=0)
    assert result["lengths"] == [1] * 3 + [2] * 3 + [3] * 3 + [n for n in range(4, 11) for _ in range(2)]
    assert result["returns"] == [1.0, 2.0, 3.0] * 3 + [1.0, 2.0] * 7
    assert result["return"] == (6 * 3 + 3 * 7) / 23
    assert "unfinished" not in result
    assert made[0].closed


def test_endless_episodes_are_counted_as_unfinished() -> None:
    result = evaluate(lambda obs: obs, Fixed, 5, seed=0, max_steps=3)
    assert result["lengths"] == [1, 2, 3]
    assert result["unfinished"] == 2


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), torch.rand(()).item()


def test_training_does_not_notice_an_evaluation() -> None:
    seed_everything(5)
    expected = [draws(), draws()]
    seed_everything(5)
    first = draws()

    def noisy(obs: torch.Tensor) -> torch.Tensor:
        draws()
        return torch.randint(2, (len(obs),))

    results = [evaluate(noisy, partial(Envs, "CartPole-v1"), 4, seed=seed) for seed in (1, 1, 2)]
    assert [first, draws()] == expected
    assert results[0] == results[1]  # and the evaluation does not notice what training has drawn
    assert results[0] != results[2]


def test_evaluation_is_logged_when_due(tmp_path: Path) -> None:
    options = RunConfig(
        out=str(tmp_path / "a"), eval_every=10, eval_episodes=3, tensorboard=False, progress=False
    )
    seeds = []

    def make(num_envs: int, *, seed: int) -> Any:
        seeds.append(seed)
        return Fixed(num_envs, seed)

    with Run.create("test", options) as run:
        for _ in run.steps(32, 4):
            run.evaluate(lambda obs: obs, make)
    lines = read_metrics(tmp_path / "a")
    assert [(line["kind"], line["step"]) for line in lines] == [("eval", 12), ("eval", 20), ("eval", 32)]
    assert lines[0]["returns"] == [1.0, 1.0, 1.0]
    assert lines[0]["lengths"] == [1, 2, 3]
    assert len(set(seeds)) == 3
    assert options.seed not in seeds


def test_generator_states_go_there_and_back() -> None:
    seed_everything(0)
    random.gauss(0, 1), np.random.normal()  # both generators keep the second of a pair
    state = rng_state()
    torch.save(state, buffer := io.BytesIO())
    expected = [draws(), random.gauss(0, 1), np.random.normal()]
    buffer.seek(0)
    set_rng_state(torch.load(buffer, weights_only=True))
    assert [draws(), random.gauss(0, 1), np.random.normal()] == expected


def test_preserved_rng() -> None:
    seed_everything(1)
    expected = draws()
    seed_everything(1)
    with pytest.raises(ZeroDivisionError), preserved_rng():
        draws()
        raise ZeroDivisionError
    assert draws() == expected


def test_derived_seeds() -> None:
    seeds = {derive_seed(seed, name, step) for seed in range(10) for name in ("a", "b") for step in range(50)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert derive_seed(1, "a") == 3206387831  # the first four bytes of sha256("1/a")


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    from critex.errors import UserError

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("cpu") == choose_device("auto") == torch.device("cpu")
    with pytest.raises(UserError, match=r"device cuda: torch .* sees no CUDA device here; use --device cpu"):
        choose_device("cuda")
    with pytest.raises(UserError, match="device 'gpu' is not known"):
        choose_device("gpu")
