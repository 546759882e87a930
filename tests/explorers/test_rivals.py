"""What holds for every explorer with networks or counts of its own, on every kind of observation and action."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from critex.algorithms.ppo import PPO
from critex.data.tree import Tree, tree_leaves
from critex.explorers import EXPLORERS, Setting, explorer_class, make_explorer
from critex.presets import default_config
from tests.algorithms.conftest import check_resume, metrics
from tests.algorithms.conftest import train as train
from tests.explorers.rollouts import ACTIONS, N, at, flat, place, rollout

CRITICS = ("none", "cae", "cae_plus", "acb", "bdqn")  # have no encoder of their own: other tests
NAMES = [*(name for name in EXPLORERS if name not in CRITICS), "e3b*noveld", "rnd+counts"]
LEARNERS = [name for name in NAMES if name != "counts"]
KINDS = [("vector", "discrete"), ("vector", "continuous"), ("image", "discrete"), ("dict", "continuous")]


def made(
    name: str, space: str = "vector", actions: str = "discrete", critic: Any = None, **options: Any
) -> Any:
    cls = explorer_class(name)
    return cls(cls.Config(**options), place(space, actions, critic))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("space", "actions"), KINDS)
def test_a_rollout_pays_what_its_steps_pay(name: str, space: str, actions: str) -> None:
    torch.manual_seed(0)
    # The first std is that of two samples, which may nearly agree: then it magnifies round-off.
    one, two = (made(name, space, actions, scaling="welford", warmup=10) for _ in range(2))
    two.load_state_dict(one.state_dict())
    steps = rollout(25, space, actions)
    by_step = torch.stack([one.bonus(at(steps, t)) for t in range(25)])
    whole = two.bonus_rollout(steps)
    assert whole.shape == (25, N) and whole.isfinite().all()
    torch.testing.assert_close(whole, by_step, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("space", ["vector", "dict"])
def test_state_is_exact_and_loads_without_executing_anything(name: str, space: str) -> None:
    one, two = made(name, space, scaling="welford"), made(name, space, scaling="welford")
    one.bonus_rollout(rollout(20, space))
    saved = io.BytesIO()
    torch.save(one.state_dict(), saved)
    saved.seek(0)
    two.load_state_dict(torch.load(saved, weights_only=True))
    more, batch = rollout(20, space, seed=1), flat(rollout(5, space, seed=2))
    assert torch.equal(one.bonus_rollout(more), two.bonus_rollout(more))
    assert one.loss(batch).item() == two.loss(batch).item()
    assert one.metrics() == two.metrics()


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize(("space", "actions"), KINDS)
def test_all_that_learns_takes_part_in_the_loss_and_the_agent_does_not(
    name: str, space: str, actions: str
) -> None:
    body = nn.Linear(4, 4)

    def critic(obs: Tree) -> Tensor:
        return body(torch.ones(*tree_leaves(obs)[0].shape[:1], 4))

    explorer = made(name, space, actions, critic)
    loss = explorer.loss(flat(rollout(6, space, actions)))
    gradients = torch.autograd.grad(
        loss, explorer.learned(), retain_graph=True
    )  # refuses what is not in the graph
    assert sum(g.abs().sum() for g in gradients) > 0
    assert torch.autograd.grad(loss, body.weight, allow_unused=True) == (None,)
    bonus = explorer.bonus(at(rollout(1, space, actions), 0))
    assert not bonus.requires_grad
    mine = {id(p) for p in explorer.parameters()}
    assert not mine & {id(p) for p in body.parameters()}


def test_counts_have_nothing_to_learn() -> None:
    explorer = made("counts")
    assert not explorer.learned() and explorer.card()["parameters_added"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_moments_of_a_batch_count_its_entries(name: str) -> None:
    """scaling=batch leaves the bonus as it is at collection and divides by the std of all T·N in the learner."""
    parts = {"first": {"scaling": "none"}, "second": {"scaling": "none"}} if set(name) & set("*+") else {}
    cls = explorer_class(name)
    if parts:
        inner = {which: type(getattr(cls.Config(), which))(**options) for which, options in parts.items()}
        explorer = cls(cls.Config(scaling="batch", **inner), place())
    else:
        explorer = made(name, scaling="batch")
    bonus = explorer.bonus_rollout(rollout(30))
    scaled = explorer.scale(bonus)
    torch.testing.assert_close(scaled, bonus / bonus.std(correction=0), rtol=1e-6, atol=1e-9)


# --- with the algorithms ---

TINY: dict[str, dict[str, Any]] = {
    "dqn": {
        "steps": 60,
        "learning_starts": 20,
        "batch_size": 8,
        "train_every": 5,
        "hidden": (8,),
        "num_envs": 2,
    },
    "ppo": {"steps": 64, "rollout": 16, "minibatches": 2, "epochs": 1, "hidden": (8,), "num_envs": 2},
    "sac": {"steps": 40, "learning_starts": 30, "batch_size": 8, "hidden": (8,), "num_envs": 2},
    "td3": {"steps": 40, "learning_starts": 30, "batch_size": 8, "hidden": (8,), "num_envs": 2},
    "dsac": {"steps": 80, "learning_starts": 40, "batch_size": 8, "hidden": (8,), "num_envs": 2},
}
PLACES = [
    ("dqn", "CartPole-v1"),
    ("dqn", "MiniGrid-Empty-5x5-v0"),
    ("ppo", "MiniGrid-Empty-5x5-v0"),
    ("ppo", "MiniGrid-Empty-5x5-v0?mission=words"),
    ("ppo", "Pendulum-v1"),
    ("sac", "Pendulum-v1"),
    ("td3", "Pendulum-v1"),
    ("dsac", "Pendulum-v1"),
]


@pytest.mark.parametrize("name", NAMES)
def test_with_every_algorithm(name: str, train: Callable[..., Path]) -> None:
    """A moment each: vectors, images and dicts, discrete and continuous actions."""
    pytest.importorskip("minigrid")
    for i, (algorithm, env) in enumerate(PLACES):
        path = train(algorithm, f"run{i}", env=env, explorer=name, log_every=1, **TINY[algorithm])
        last = [line for line in metrics(path) if line["kind"] == "train"][-1]
        assert last["bonus"] >= 0 and last["loss"] == last["loss"]


@pytest.mark.parametrize("name", ["ride", "e3b*noveld"])
def test_resume_is_exact(name: str, train: Callable[..., Path]) -> None:
    """Killed in an update, in the middle of episodes: networks, counts, memories and scalers come back."""
    pytest.importorskip("minigrid")
    options = TINY["ppo"] | {"env": "MiniGrid-Empty-5x5-v0", "explorer": name, "steps": 192, "log_every": 1}
    options |= {"checkpoint_every": 32, "bonus": explorer_class(name).Config(scaling="welford")}
    check_resume(train, "ppo", **options)


# --- presets ---


@pytest.mark.parametrize(
    ("name", "alpha", "official"),
    [
        ("e3b", 1.0, {"scaling": "batch", "count_rows": True, "cross_episode_ends": True, "ridge": 0.1}),
        ("noveld", 1.0, {"scaling": "batch", "count_rows": True, "c": 0.1}),
        ("rnd", 0.001, {"scaling": "none"}),
        (
            "icm",
            0.1,
            {"scaling": "none", "forward_coef": 1.0, "inverse_coef": 0.1, "cross_episode_ends": True},
        ),
        (
            "ride",
            0.1,
            {"scaling": "none", "forward_coef": 1.0, "inverse_coef": 0.1, "cross_episode_ends": True},
        ),
        ("e3b*noveld", 1.0, {"scaling": "batch", "count_rows": True}),
    ],
)
def test_presets_are_those_of_the_comparison(name: str, alpha: float, official: dict[str, Any]) -> None:
    cfg = default_config("ppo", name, "official", "CartPole-v1")
    assert cfg.alpha == alpha and cfg.reward_clip == 1.0
    assert {key: getattr(cfg.bonus, key) for key in official} == official
    agent = PPO(cfg, place().observation_space, ACTIONS["discrete"], torch.device("cpu"))  # type: ignore[arg-type]
    explorer = make_explorer(cfg, Setting(agent.embedding, agent.seen_space, N), rollouts=True)
    assert explorer.bonus_rollout(rollout(5)).shape == (5, N)
