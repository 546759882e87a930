"""The transform inside TorchRL: the same bonus as ours, its spec checks, collectors of one and several processes."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("torchrl")
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.collectors import Collector, MultiSyncCollector
from torchrl.data import Binary, LazyTensorStorage, MultiCategorical, TensorDictReplayBuffer, Unbounded
from torchrl.envs import (
    Compose,
    GymWrapper,
    ObservationNorm,
    RewardSum,
    SerialEnv,
    StepCounter,
    TransformedEnv,
)
from torchrl.envs.utils import check_env_specs
from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss, CQLLoss, DDPGLoss, IQLLoss, REDQLoss, SACLoss, TD3Loss

import critex
from critex.bonus import Gram
from critex.explorers import _alpha
from critex.plugins import _torchrl_critic
from critex.plugins.torchrl import ExplorerLoss, ExplorerTransform, SharedGram, critic_of

from .line import Line


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))


def base(n: int = 1, **keywords: Any) -> Any:
    if n == 1:
        return GymWrapper(Line(**keywords))
    return SerialEnv(n, lambda: GymWrapper(Line(**keywords)))


def explored(
    explorer: str = "cae", *, n: int = 1, value: Any = None, line: Any = None, **options: Any
) -> Any:
    embed = critex.last_hidden(value or net())
    transform = ExplorerTransform(explorer, embed=embed, **({"alpha": 0.5} | options))
    return TransformedEnv(base(n, **(line or {})), Compose(RewardSum(), transform))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("explorer", ["cae", "cae_plus", "e3b", "rnd", "icm", "ride", "noveld", "counts"])
def test_spec_checks(explorer: str, n: int) -> None:
    check_env_specs(explored(explorer, n=n))


def test_a_whole_critic_gives_its_phi() -> None:
    value = net()
    transform = ExplorerTransform("cae", alpha=0.5, embed=value)
    assert transform.build(base()).embedding.critic_dim == 16
    with pytest.raises(critex.UserError, match="give dim=, the length of the φ"):
        ExplorerTransform("cae", embed=lambda obs: obs)


@pytest.mark.parametrize("n", [1, 3])
def test_the_bonus_is_ours(n: int) -> None:
    value = net()
    env = explored(n=n, value=value)
    data = env.rollout(30, break_when_any_done=False).reshape(n, 30).transpose(0, 1)  # [T, N]
    ours = critex.CAE(
        critex.last_hidden(value), alpha=0.5, embedding="state_and_action", num_actions=2, num_envs=n
    )
    bonus, reward = data["next", "bonus"].squeeze(-1), data["next", "reward"].squeeze(-1)
    for t in range(30):
        paid = ours(data["observation"][t], data["action"][t].long().argmax(-1))
        torch.testing.assert_close(0.5 * bonus[t], paid.float(), atol=1e-6, rtol=0)
    torch.testing.assert_close(reward, 1.0 + 0.5 * bonus)


def test_continuous_actions_and_a_critic_that_takes_them() -> None:
    value = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))

    def embed(obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return value[:-1](torch.cat([obs, action], -1))

    transform = ExplorerTransform("cae", 0.5, embed=embed, dim=16)
    env = TransformedEnv(base(continuous=True), transform)
    check_env_specs(env)
    assert (env.rollout(10)["next", "bonus"] > 0).all()
    assert transform.explorer.gram.dim == 16  # type: ignore[union-attr]


# Losses that train the critic that they are given, or copies of it.

DEEP = {"depth": 1, "num_cells": 16, "out_features": 1}


def losses() -> dict[str, Any]:
    torch.manual_seed(0)
    spec = base(continuous=True).action_spec
    parameters = nn.Sequential(nn.Linear(3, 2), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(parameters, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        spec=spec,
        return_log_prob=True,
    )
    plain = TensorDictModule(nn.Linear(3, 1), ["observation"], ["action"])
    # As TorchRL's own scripts write it: the action first, and an MLP that takes any number of inputs.
    q = ValueOperator(MLP(in_features=4, **DEEP), in_keys=["action", "observation"])
    value = ValueOperator(MLP(in_features=3, **DEEP), in_keys=["observation"])
    return {
        "sac": lambda: SACLoss(actor, q),
        "td3": lambda: TD3Loss(plain, q, action_spec=spec),
        "redq": lambda: REDQLoss(actor, q),
        "cql": lambda: CQLLoss(actor, q),
        "iql": lambda: IQLLoss(actor, q, value),
        "ddpg": lambda: DDPGLoss(plain, q),
        "ppo": lambda: ClipPPOLoss(actor, value),
        "ppo_module": lambda: ClipPPOLoss(actor, value, functional=False),
    }


def first_layer(loss: Any, network: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias that the loss trains, of the first copy."""
    params = getattr(loss, f"{network}_params", None)
    if params is None:
        layer = getattr(loss, network).module[0]
        return layer.weight, layer.bias
    weight, bias = (params["module", "0", name] for name in ("weight", "bias"))
    return (weight[0], bias[0]) if params.batch_dims else (weight, bias)


@pytest.mark.parametrize("name", losses())
def test_phi_of_the_critic_that_a_loss_trains(name: str) -> None:
    loss = losses()[name]()
    transform = ExplorerTransform("cae", 0.5, embed=critic_of(loss))
    env = TransformedEnv(base(continuous=True), transform)
    env.rollout(4)
    phi = transform.explorer.embedding  # type: ignore[union-attr]
    obs, action = torch.randn(5, 3), torch.randn(5, 1)
    network = {"ddpg": "value", "ppo": "critic", "ppo_module": "critic"}.get(name, "qvalue") + "_network"
    inputs = obs if network == "critic_network" else torch.cat([action, obs], -1)
    before = phi(obs, action)
    assert before.shape == (5, 17 if network == "critic_network" else 16)  # [φ(s); a] or φ(s,a)
    before[:, :16].square().sum().backward()  # CAE+ adds such a gradient
    torch.optim.SGD(loss.parameters(), lr=0.1).step()
    weight, bias = first_layer(loss, network)
    torch.testing.assert_close(phi(obs, action)[:, :16], torch.tanh(inputs @ weight.T + bias))
    assert not torch.allclose(phi(obs, action), before)


def test_a_loss_without_a_critic() -> None:
    with pytest.raises(critex.UserError, match="ExplorerLoss has no critic"):
        critic_of(ExplorerLoss(explored("rnd").transform[1]))


def test_a_critic_that_reads_other_observations() -> None:
    critic = ValueOperator(MLP(in_features=6, **DEEP), in_keys=["observation", "memory"])
    with pytest.raises(critex.UserError, match="the critic reads memory; give all"):
        TransformedEnv(base(), ExplorerTransform(embed=critic))


@pytest.mark.parametrize("kind", ["trained", "untrained", "frozen"])
def test_a_critic_that_nobody_trains_is_reported_once(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_torchrl_critic, "PATIENCE", 10)
    value = net().requires_grad_(kind != "frozen")
    env = explored(value=value)
    env.rollout(5, break_when_any_done=False)
    if kind == "trained":
        value[0].weight.data += 0.01
    env.rollout(40, break_when_any_done=False)
    assert capsys.readouterr().err.count("critic_of(loss)") == (kind == "untrained")


@pytest.mark.parametrize("module", ["torchrl.collectors._runner", "__main__"])
def test_a_copy_of_the_critic_in_a_worker_is_refused(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = SimpleNamespace(_target=SimpleNamespace(__module__=module))
    monkeypatch.setattr(multiprocessing, "current_process", lambda: worker)
    explored("cae", value=net().requires_grad_(False))
    ExplorerTransform("cae", phi_key="phi", dim=8).build(base())
    if module == "__main__":  # a whole training in a process of the user's
        explored("cae")
        return
    with pytest.raises(critex.UserError, match="give phi_key= instead"):
        explored("cae")


def memory(transform: Any) -> torch.Tensor:
    return transform.explorer.gram.matrix().clone()


@pytest.mark.parametrize("n", [1, 2])
def test_evaluation_leaves_reward_and_memory_alone(n: int) -> None:
    env = explored(n=n, alpha="auto", scope="episodic")
    env.append_transform(StepCounter())
    assert (env.rollout(7)["next", "bonus"] > 0).any()
    explore = env.transform[1]
    before, alpha = memory(explore), explore.explorer.alpha.state_dict()
    data = env.eval().rollout(7, break_when_any_done=False)
    assert (data["next", "reward"] == 1).all() and (data["next", "bonus"] == 0).all()
    assert torch.equal(memory(explore), before) and explore.explorer.alpha.state_dict() == alpha
    check_env_specs(env)
    env.train()
    first = env.step(env.rand_action(data[..., -1]["next"].exclude("reward")))  # no reset in between
    assert (first["next", "bonus"] > 0).all()
    fresh = memory(explored(n=n, scope="episodic").transform[1])
    added = memory(explore).diagonal(dim1=-2, dim2=-1).sum() - fresh.diagonal(dim1=-2, dim2=-1).sum()
    assert 0 < added < n * (16 + 1) + 1e-6  # one row each: a new episode


def test_a_clone_has_a_memory_of_its_own_in_another_environment() -> None:
    env = explored(alpha="auto")
    env.rollout(6)
    explore = env.transform[1]
    before, alpha = memory(explore), explore.explorer.alpha.state_dict()
    other = TransformedEnv(base(2), env.transform.clone())
    other.rollout(6)
    assert other.transform[1].explorer.gram.memories == 1 and len(other.transform[1]._alpha._sums) == 2
    assert torch.equal(memory(explore), before) and explore.explorer.alpha.state_dict() == alpha


def test_transforms_that_are_added_later_keep_the_memory() -> None:
    """TorchRL clones the transforms of an environment that it wraps again."""
    explore = ExplorerTransform("cae", 0.5, embed=net())
    env = TransformedEnv(base(), explore)
    env.rollout(6)
    env.insert_transform(0, RewardSum())
    assert env.transform[1] is not explore and env.transform[1].explorer is explore.explorer
    env = TransformedEnv(env, StepCounter(), auto_unwrap=True)
    assert env.transform[1].explorer is explore.explorer
    before = memory(explore)
    assert (env.rollout(3)["next", "bonus"] > 0).all()  # it is still in training mode
    assert not torch.equal(memory(explore), before)


def test_the_observations_must_not_change_after_it() -> None:
    norm = {"loc": 5.0, "scale": 2.0, "in_keys": ["observation"]}
    env = explored(embedding="next_state")
    env.append_transform(ObservationNorm(**norm))
    with pytest.raises(critex.UserError, match="ObservationNorm changes the observations after"):
        env.rollout(3)
    seen = []

    def embed(obs: torch.Tensor) -> torch.Tensor:
        seen.append(obs.clone())
        return obs

    last = ExplorerTransform("cae", embed=embed, dim=3, embedding="next_state")
    data = TransformedEnv(base(), Compose(ObservationNorm(**norm), last)).rollout(3)
    torch.testing.assert_close(torch.cat(seen), data["next", "observation"])
    given = Compose(ExplorerTransform("cae", phi_key="phi", dim=8), ObservationNorm(**norm))
    TransformedEnv(base(), given).rollout(3, phi_policy())


@pytest.mark.parametrize("n", [1, 2])
def test_inverse_dynamics_know_the_range_of_the_actions(n: int) -> None:
    env = explored("icm", n=n, line={"continuous": True})
    inverse = env.transform[1].explorer.inverse
    assert inverse.low.tolist() == [-2.0] and inverse.high.tolist() == [2.0]
    env = base()
    env.action_spec = Unbounded((1,))
    free = ExplorerTransform("icm")
    TransformedEnv(env, free)
    assert free.explorer.inverse._min_log_std.exp().tolist() == pytest.approx([0.1])  # type: ignore[union-attr]


def test_an_episodic_memory_is_reset_by_mask() -> None:
    env = explored("counts", n=2, alpha=1.0, scope="episodic", kind="first_visit")
    data = env.rollout(40, break_when_any_done=False)
    assert (data["next", "bonus"] == 1).all()  # time makes every state of an episode new
    assert data["next", "done"].any()
    started = explored("cae", n=2, scope="episodic", zero_first=True).rollout(40, break_when_any_done=False)
    first = started["observation"][..., 1:2] == 0
    assert torch.equal(started["next", "bonus"] == 0, first)


def test_reward_sum_before_it_stays_extrinsic() -> None:
    data = explored().rollout(40, break_when_any_done=False)
    ended = data["next", "done"].squeeze(-1)
    assert set(data["next", "episode_reward"][ended].flatten().tolist()) <= {3.0, 4.0, 5.0}


def test_a_collector_fills_a_replay_buffer() -> None:
    collector = Collector(explored(n=2), None, frames_per_batch=20, total_frames=40)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=8)
    for data in collector:
        buffer.extend(data.reshape(-1))
    collector.shutdown()
    sample = buffer.sample()
    torch.testing.assert_close(sample["next", "reward"], 1.0 + 0.5 * sample["next", "bonus"])


def phi_policy() -> TensorDictSequential:
    torch.manual_seed(0)
    embed = TensorDictModule(nn.Sequential(nn.Linear(3, 8), nn.Tanh()), ["observation"], ["phi"])
    act = TensorDictModule(
        lambda phi: torch.nn.functional.one_hot((phi[..., 0] > 0).long(), 2), ["phi"], ["action"]
    )
    return TensorDictSequential(embed, act)


class MakeEnv:
    def __init__(self, shared: Path) -> None:
        self.shared = shared

    def __call__(self) -> Any:
        transform = ExplorerTransform("cae", 0.5, phi_key="phi", dim=8, shared=self.shared, sync_every=10)
        return TransformedEnv(base(), transform)


@pytest.mark.slow  # two processes import torch
def test_collectors_in_several_processes_share_one_memory(tmp_path: Path) -> None:
    make = MakeEnv(tmp_path / "gram")
    collector = MultiSyncCollector(
        [make, make], phi_policy(), frames_per_batch=40, total_frames=400, init_random_frames=0
    )
    rounds = iter(collector)
    batches = [next(rounds).clone() for _ in range(2)]
    workers = collector.state_dict()  # the workers are gone once all frames are collected
    collector.shutdown()
    # φ holds the one-hot action too, so every step adds ‖φ‖² + 1 to tr A.
    mass = [float(data["phi"].double().square().sum()) + data.numel() for data in batches]
    shared = np.frombuffer((tmp_path / "gram").read_bytes()).reshape(10, 10)
    assert np.trace(shared) == pytest.approx(sum(mass), rel=1e-5)
    held = []
    for worker in ("worker0", "worker1"):
        env = make()
        env.load_state_dict(workers[worker]["env_state_dict"])
        held.append(float(env.transform.explorer.gram.matrix()[0].trace()) - 10.0)  # − λd
    assert max(held) == pytest.approx(
        sum(mass), rel=1e-5
    )  # who exchanged last has merged every step of the other
    assert min(held) > 0


def test_shared_memories_are_the_memory_of_all_rows(tmp_path: Path) -> None:
    rows = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grams = [Gram(5), Gram(5)]
    pools = [SharedGram(tmp_path / "gram", gram) for gram in grams]
    for i in range(0, 40, 10):
        for k, (gram, pool) in enumerate(zip(grams, pools, strict=True)):
            gram.observe(rows[i + 5 * k : i + 5 * k + 5])
            pool.exchange()
    pools[0].exchange()
    alone = Gram(5)
    alone.observe(rows)
    for gram in grams:
        torch.testing.assert_close(gram.matrix(), alone.matrix())
    restored = Gram(5)  # what it has exchanged before is not merged again
    restored.load_state_dict(grams[1].state_dict())
    SharedGram(tmp_path / "gram", restored).exchange()
    torch.testing.assert_close(restored.matrix(), alone.matrix())
    with pytest.raises(critex.UserError, match="another shared="):
        SharedGram(tmp_path / "gram", Gram(6)).exchange()
    SharedGram(tmp_path / "new", restored).exchange()  # the file is gone, what it held is not
    torch.testing.assert_close(restored.matrix(), alone.matrix())
    other = Gram(5)
    SharedGram(tmp_path / "new", other).exchange()
    torch.testing.assert_close(other.matrix(), alone.matrix())


@pytest.mark.parametrize("explorer", ["cae_plus", "e3b", "rnd", "icm"])
def test_the_loss_module_teaches(explorer: str) -> None:
    value = net()
    env = explored(explorer, value=value, n=2)
    data = env.rollout(40, break_when_any_done=False)
    loss = ExplorerLoss(env.transform[1])
    optimizer = torch.optim.Adam([*value.parameters(), *loss.parameters()], lr=1e-2)
    values = []
    for _ in range(30):
        out = loss(data)["loss_explorer"]
        optimizer.zero_grad()
        out.backward()
        optimizer.step()
        values.append(float(out))
    assert values[-1] < values[0]
    assert (value[0].weight.grad is not None) == (explorer == "cae_plus")


@pytest.mark.parametrize("n", [1, 3])
def test_alpha_sums_the_bonuses_of_one_episode_also_after_a_reset(n: int) -> None:
    """A rollout that stops in the middle of an episode is followed by a reset; B = Σ γᵏβ of the second one alone."""
    env = explored(n=n, alpha="auto", gamma=0.5)
    env.rollout(2)
    bonus = env.rollout(2)["next", "bonus"].reshape(n, 2)
    sums = env.transform[1].explorer.alpha.state_dict()["sums"]
    assert sums == pytest.approx((0.5 * bonus[:, 0] + bonus[:, 1]).tolist())


@pytest.mark.parametrize("n", [1, 3])
def test_alpha_from_the_scales_of_rewards_and_bonuses(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_alpha, "WARMUP", 5)
    env, rule = explored(n=n, alpha="auto", gamma=0.8), _alpha.Alpha("auto", 0.8)
    data = env.rollout(30, break_when_any_done=False).reshape(n, 30).transpose(0, 1)  # [T, N]
    bonus, reward, ended = (data["next", key].squeeze(-1) for key in ("bonus", "reward", "done"))
    starts = torch.cat([torch.ones_like(ended[:1]), ended[:-1]])
    alphas = [rule.observe(torch.ones(n), b, s) for b, s in zip(bonus, starts, strict=True)]
    torch.testing.assert_close(reward, 1.0 + torch.tensor(alphas)[:, None] * bonus)
    again = explored(n=n, alpha="auto")
    again.load_state_dict(env.state_dict())
    assert env.transform[1].alpha == again.transform[1].alpha == alphas[-1] != alphas[0]


def test_the_memory_is_in_the_state_dict() -> None:
    env = explored()
    env.rollout(20)
    again = explored()
    again.load_state_dict(env.state_dict())
    assert torch.equal(env.transform[1].explorer.gram.matrix(), again.transform[1].explorer.gram.matrix())


def test_what_is_refused() -> None:
    with pytest.raises(critex.UserError, match="not both"):
        ExplorerTransform("cae", embed=critex.last_hidden(net()), phi_key="phi")
    with pytest.raises(critex.UserError, match="dim="):
        ExplorerTransform("cae", phi_key="phi")
    with pytest.raises(critex.UserError, match="embed= or phi_key="):
        TransformedEnv(base(), ExplorerTransform("cae")).rollout(3)
    with pytest.raises(critex.UserError, match="lifelong"):
        TransformedEnv(base(), ExplorerTransform("counts", shared="x")).rollout(3)
    with pytest.raises(critex.UserError, match="next_state"):
        ExplorerTransform("cae", phi_key="phi", dim=8, embedding="next_state")
    with pytest.raises(critex.UserError, match="append the ExplorerTransform"):
        ExplorerLoss(ExplorerTransform("rnd"))
    with pytest.raises(critex.UserError, match="TransformedEnv"):
        explored().transform[1](TensorDict({}, []))
    given = TransformedEnv(base(), ExplorerTransform("cae_plus", phi_key="phi", dim=8))
    with pytest.raises(critex.UserError, match="give embed="):
        ExplorerLoss(given.transform)
    with pytest.raises(critex.UserError, match="no phi: phi_key needs a policy that writes it"):
        given.rollout(3)
    with pytest.raises(critex.UserError, match="leave out phi_key="):
        TransformedEnv(base(), ExplorerTransform("e3b", phi_key="phi", dim=3))
    with pytest.raises(critex.UserError, match="cross_episode_ends"):
        TransformedEnv(base(), ExplorerTransform("icm", cross_episode_ends=True))
    for spec in (MultiCategorical([2, 2]), Binary(3)):
        env = base()
        env.action_spec = spec
        with pytest.raises(critex.UserError, match="one-hot, categorical and float"):
            TransformedEnv(env, ExplorerTransform("rnd"))


def test_a_policy_that_writes_phi() -> None:
    transform = ExplorerTransform("cae", 0.5, phi_key="phi", dim=8, takes_action=True)
    env = TransformedEnv(base(), transform)
    data = env.rollout(12, phi_policy(), break_when_any_done=False)
    gram = Gram(8)
    raw = gram.observe(data["phi"]).sqrt()
    assert torch.equal(transform.explorer.gram.matrix(), gram.matrix())  # type: ignore[union-attr]
    assert float(data["next", "bonus"][0]) == pytest.approx(float(raw[0]), rel=1e-5)


def test_several_observations_and_categorical_actions() -> None:
    env = GymWrapper(Line(kind="dict"), categorical_action_encoding=True)
    transform = ExplorerTransform("rnd", 0.5, in_keys=["a", "b"])
    env = TransformedEnv(env, transform)
    check_env_specs(env)
    data = env.rollout(10, break_when_any_done=False)
    assert (data["next", "bonus"] > 0).any()
    assert ExplorerLoss(transform)(data)["loss_explorer"] > 0


def test_images() -> None:
    with pytest.raises(critex.UserError, match="observation"):
        TransformedEnv(base(kind="image"), ExplorerTransform("rnd", 0.5, in_keys=["pixels"]))
    env = TransformedEnv(base(kind="image"), ExplorerTransform("rnd", 0.5))
    assert (env.rollout(5)["next", "bonus"] > 0).any()
    critic = nn.Sequential(nn.Conv2d(3, 1, 5, 4), nn.Flatten(), nn.Linear(64, 1))
    with pytest.raises(critex.UserError, match=r"inputs of torch\.uint8"):
        TransformedEnv(base(kind="image"), ExplorerTransform("cae", embed=critic)).rollout(5)
