import io
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces, vector
from gymnasium.vector import SyncVectorEnv

from critex.data import Transition, tree_leaves
from critex.envs import Envs, Episode, episode_seed, make
from critex.envs.workers import Local
from critex.errors import UserError


class Counter(gym.Env[Any, Any]):
    """Counts its steps; its k-th episode ends after length + k·grow of them and shows k·grow."""

    reward = 0.1

    def __init__(self, length: int = 3, kind: str = "box", truncate: bool = False, grow: int = 1) -> None:
        vector = spaces.Box(-10.0, 10.0, (2,), np.float64)
        self.length, self.kind, self.truncate, self.grow, self.extra, self.count = (
            length,
            kind,
            truncate,
            grow,
            -grow,
            0,
        )
        self.actions: list[Any] = []
        self.observation_space = {
            "box": vector,
            "discrete": spaces.Discrete(100),
            "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
            "dict": spaces.Dict({"v": vector, "n": spaces.Discrete(100), "mission": spaces.Text(20)}),
            "nested": spaces.Dict({"in": spaces.Dict({"v": vector, "bits": spaces.MultiBinary(2)})}),
            "text": spaces.Text(5),
            "tuple": spaces.Tuple((vector, vector)),
        }[kind]
        self.action_space = (
            spaces.Discrete(3, start=5) if kind != "image" else spaces.Box(-1, 1, (2,), np.float64)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.extra, self.seed_used = 0, self.extra + self.grow, seed
        return self._obs(), {"position": (0,), "junk": "x"}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.actions.append(action)
        end = self.count == self.length + self.extra
        info = {"position": (self.count,), "junk": object()}
        return self._obs(), self.reward, end and not self.truncate, end and self.truncate, info

    def _obs(self) -> Any:
        vector = np.array([self.count, self.extra], np.float64)
        image = np.full((2, 2, 3), self.count, np.uint8)
        return {
            "box": vector,
            "discrete": self.count,
            "image": image,
            "dict": {"v": vector, "n": self.count, "mission": "go"},
            "nested": {"in": {"v": vector, "bits": np.array([1, 0], np.int8)}},
        }[self.kind]


@pytest.fixture(autouse=True)
def counter() -> Any:
    gym.register("Counter-v0", Counter)
    yield
    del gym.registry["Counter-v0"]


def inner(envs: Envs) -> list[gym.Env[Any, Any]]:
    (group,) = envs._groups
    assert isinstance(group, Local)
    return group.envs


def zeros(envs: Envs) -> torch.Tensor:
    return torch.zeros((envs.num_envs, *envs.action_space.shape), dtype=torch.int64)


def act(envs: Envs, generator: torch.Generator) -> torch.Tensor:
    if isinstance(envs.action_space, spaces.Discrete):
        return torch.randint(int(envs.action_space.n), (envs.num_envs,), generator=generator)
    return torch.rand((envs.num_envs, *envs.action_space.shape), generator=generator) * 2 - 1


@pytest.mark.parametrize("truncate", [False, True])
def test_final_observations_are_the_true_ones(truncate: bool) -> None:
    envs = Envs("Counter-v0", 2, length=2, truncate=truncate)
    assert envs.obs.tolist() == [[0, 0], [0, 0]] and envs.obs.dtype == torch.float32
    seen = []
    for _ in range(5):
        acted_on = envs.obs
        transition, obs = envs.step(zeros(envs))
        assert torch.equal(transition.obs, acted_on) and obs is envs.obs
        seen.append((transition, obs))
    count = [t.next_obs[0].tolist() for t, _ in seen]
    assert count == [[1, 0], [2, 0], [1, 1], [2, 1], [3, 1]]  # episodes of 2 and 3 steps, ends included
    assert [o[0].tolist() for _, o in seen] == [[1, 0], [0, 1], [1, 1], [2, 1], [0, 2]]
    ended = [False, True, False, False, True]
    assert [t.ended[1].item() for t, _ in seen] == ended
    assert [(t.truncated if truncate else t.terminated)[1].item() for t, _ in seen] == ended
    assert [t.episode_start[0].item() for t, _ in seen] == [True, False, True, False, False]
    assert [t.info["position"].tolist() for t, _ in seen][:2] == [[[1], [1]], [[2], [2]]]
    assert all(list(t.info) == ["position", "start_position"] for t, _ in seen)
    assert all(not t.info["start_position"].any() for t, _ in seen)


def test_only_finished_envs_are_reset() -> None:
    envs = Envs("Counter-v0", 2, length=3)
    inner(envs)[1].unwrapped.length = 5
    for _ in range(3):
        transition, obs = envs.step(zeros(envs))
    assert transition.next_obs.tolist() == [[3, 0], [3, 0]] and obs.tolist() == [[0, 1], [3, 0]]
    assert envs.pop_episodes() == [Episode(env=0, length=3, return_=pytest.approx(0.3))]
    assert envs.pop_episodes() == []
    for _ in range(2):
        envs.step(zeros(envs))
    assert envs.pop_episodes() == [Episode(env=1, length=5, return_=pytest.approx(0.5))]


def test_episodes_say_how_long_ago_they_ended() -> None:
    """Also those that were collected by a copy made on the way."""
    envs = Envs("Counter-v0", 2, length=3, grow=0)
    for _ in range(4):
        envs.step(zeros(envs))
    copy = Envs("Counter-v0", 2, length=3, grow=0)
    copy.load_state_dict(envs.state_dict())
    for envs_ in (envs, copy):
        for _ in range(3):
            envs_.step(zeros(envs_))
        assert [(e.env, e.ago) for e in envs_.pop_episodes()] == [(0, 8), (1, 8), (0, 2), (1, 2)]
        for _ in range(2):
            envs_.step(zeros(envs_))
        assert [(e.env, e.ago) for e in envs_.pop_episodes()] == [(0, 0), (1, 0)]


def test_transitions_do_not_change_afterwards() -> None:
    envs = Envs("Counter-v0", 2, length=2)
    action = zeros(envs)
    kept: list[tuple[Transition, list[torch.Tensor]]] = []
    for _ in range(6):
        transition, _ = envs.step(action)
        kept.append((transition, [leaf.clone() for leaf in transition.leaves()]))
    for transition, then in kept:
        assert all(torch.equal(a, b) for a, b in zip(transition.leaves(), then, strict=True))


def test_observation_kinds() -> None:
    discrete = Envs("Counter-v0", 2, kind="discrete", length=9)
    assert discrete.step(zeros(discrete))[1].tolist() == [1, 1] and discrete.obs.dtype == torch.int64

    image = Envs("Counter-v0", 2, kind="image", length=9)
    image.step(torch.zeros(2, 2))
    assert image.obs.shape == (2, 2, 2, 3) and image.obs.dtype == torch.uint8 and int(image.obs.max()) == 1

    tree = Envs("Counter-v0", 2, kind="dict", length=9)
    transition, _ = tree.step(zeros(tree))
    assert set(transition.obs) == {"v", "n"} == set(tree.observation_space.spaces)  # no mission
    assert transition.next_obs["n"].tolist() == [1, 1] and transition.next_obs["v"].dtype == torch.float32

    nested = Envs("Counter-v0", 1, kind="nested", length=9)
    assert nested.obs["in"]["bits"].tolist() == [[1, 0]] and nested.obs["in"]["v"].tolist() == [[0, 0]]


def test_actions_arrive_in_the_envs_own_dtype() -> None:
    discrete = Envs("Counter-v0", 2, length=9)
    discrete.step(torch.tensor([0, 2]))
    taken = [env.unwrapped.actions[0] for env in inner(discrete)]
    assert taken == [5, 7] and discrete.action_space.contains(taken[0])  # counted from the space's start

    box = Envs("Counter-v0", 1, kind="image", length=9)
    action = torch.tensor([[0.25, -1.0]], requires_grad=True)
    box.step(action)
    taken = inner(box)[0].unwrapped.actions[0]
    assert taken.dtype == np.float64 and taken.tolist() == [0.25, -1.0]


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(ValueError, match="1 actions for 2 envs"):
        Envs("Counter-v0", 2).step(torch.tensor([0]))
    for kind in ("text", "tuple"):
        with pytest.raises(UserError, match="Counter-v0 has observations"):
            Envs("Counter-v0", kind=kind)
    with pytest.raises(UserError, match="num_envs"):
        Envs("Counter-v0", 0)
    with pytest.raises(UserError, match="negative"):
        Envs("Counter-v0", seed=-1)


def test_a_reward_that_is_not_finite_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counter, "reward", math.nan)
    envs = Envs("Counter-v0", 2)
    with pytest.raises(UserError, match="Counter-v0 returned a reward that is not finite"):
        for _ in range(3):
            envs.step(zeros(envs))


def test_no_two_episodes_share_a_seed() -> None:
    seeds = [
        episode_seed(seed, env, episode)
        for seed in (0, 1, 2, 2**32)
        for env in range(8)
        for episode in range(50)
    ]
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**32 for seed in seeds)


def test_every_reset_is_seeded() -> None:
    envs = Envs("Counter-v0", 2, seed=3, length=1)
    used = []
    for _ in range(3):
        used.append([env.unwrapped.seed_used for env in inner(envs)])
        for _ in range(1 + len(used) - 1):
            envs.step(zeros(envs))
    assert used == [[episode_seed(3, env, episode) for env in range(2)] for episode in range(3)]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Hopper-v4", "RiverSwim-5-v0"])
def test_equals_gymnasiums_vector_env(env_id: str) -> None:
    """The reference: SyncVectorEnv without autoreset, finished envs reset by mask with the same seeds."""
    if env_id == "Hopper-v4":
        pytest.importorskip("mujoco")
    n, episode, generator = 3, np.zeros(3, int), torch.Generator().manual_seed(0)
    envs = Envs(env_id, n, seed=7)
    if not hasattr(vector, "AutoresetMode"):
        pytest.skip("gymnasium before 1.1 cannot switch autoreset off")
    reference = SyncVectorEnv([lambda: make(env_id)] * n, autoreset_mode=vector.AutoresetMode.DISABLED)

    def seeds() -> list[int]:
        return [episode_seed(7, i, int(k)) for i, k in enumerate(episode)]

    def equal(ours: torch.Tensor, theirs: np.ndarray[Any, Any]) -> bool:
        return np.array_equal(ours.numpy(), theirs.astype(ours.numpy().dtype))

    assert equal(envs.obs, reference.reset(seed=seeds())[0])
    for _ in range(120):
        action = act(envs, generator)
        transition, obs = envs.step(action)
        next_obs, reward, terminated, truncated, info = reference.step(action.numpy())
        assert equal(transition.next_obs, next_obs) and equal(transition.reward, reward)
        assert equal(transition.terminated, terminated) and equal(transition.truncated, truncated)
        assert ("position" in transition.info) == ("position" in info)
        assert "position" not in info or equal(transition.info["position"], info["position"])
        ended = terminated | truncated
        if ended.any():
            episode += ended
            next_obs = reference.reset(seed=seeds(), options={"reset_mask": ended})[0]
        assert equal(obs, next_obs)
    assert episode.min() > 1


# Saved and restored, bit for bit


def restored(envs: Envs, kwargs: dict[str, Any]) -> Envs:
    file = io.BytesIO()
    torch.save(envs.state_dict(), file)
    file.seek(0)
    fresh = Envs(envs.env_id, envs.num_envs, envs.seed, **kwargs)
    for _ in range(5):  # whatever it did before is forgotten
        fresh.step(act(fresh, torch.Generator()))
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


def identical(a: Envs, b: Envs, steps: int) -> None:
    generator = torch.Generator().manual_seed(1)
    assert all(torch.equal(x, y) for x, y in zip(tree_leaves(a.obs), tree_leaves(b.obs), strict=True))
    for _ in range(steps):
        action = act(a, generator)
        (t, _), (u, _) = a.step(action), b.step(action)
        assert all(torch.equal(x, y) for x, y in zip(t.leaves(), u.leaves(), strict=True))
        assert all(torch.equal(x, y) for x, y in zip(tree_leaves(a.obs), tree_leaves(b.obs), strict=True))
    assert a.pop_episodes() == b.pop_episodes()  # to the last bit of the return


@pytest.mark.parametrize(
    "env_id, n, kwargs",
    [
        ("CartPole-v1", 3, {}),
        ("DeepSea-7-v0", 2, {}),
        ("RiverSwim-5-v0", 3, {}),
        ("Counter-v0", 2, {"kind": "dict", "grow": 0}),
        ("Counter-v0", 1, {"kind": "image", "grow": 0}),
        ("Pendulum-v1", 1, {}),
        ("Hopper-v4", 3, {}),
        ("Swimmer-v4", 1, {"max_episode_steps": 30}),
        ("MiniGrid-MultiRoom-N2-S4-v0", 3, {"max_episode_steps": 40}),
    ],
)
def test_a_restored_state_continues_identically(env_id: str, n: int, kwargs: dict[str, Any]) -> None:
    if env_id.startswith(("Hopper", "Swimmer")):
        pytest.importorskip("mujoco")
    if env_id.startswith("MiniGrid"):
        pytest.importorskip("minigrid")
    envs, generator = Envs(env_id, n, seed=4, **kwargs), torch.Generator().manual_seed(0)
    for steps in (0, 1, 13):
        for _ in range(steps):
            envs.step(act(envs, generator))
        identical(envs, restored(envs, kwargs), 25)
    ended = False
    while not ended:  # a state saved when an episode has just ended
        ended = bool(envs.step(act(envs, generator))[0].ended.any())
    identical(envs, restored(envs, kwargs), 5)


def test_a_state_of_another_size_is_refused() -> None:
    state = Envs("Counter-v0", 2).state_dict()
    with pytest.raises(UserError, match="2 envs, this run has 3"):
        Envs("Counter-v0", 3).load_state_dict(state)


def test_minigrid_gives_images_positions_and_different_levels() -> None:
    pytest.importorskip("minigrid")
    envs = Envs("MiniGrid-MultiRoom-N2-S4-v0", 8, seed=0)
    transition, _ = envs.step(torch.full((8,), 2))
    assert transition.next_obs.shape == (8, 7, 7, 21) and transition.next_obs.dtype == torch.uint8
    assert transition.info["position"].shape == (8, 2)
    assert len({tuple(row.tolist()) for row in transition.info["position"]}) > 1
    assert len({bytes(row.numpy()) for row in envs.obs}) > 1
