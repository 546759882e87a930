"""What a plug-in says on import if its library is missing or of another version, and how explorers train beside a critic."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import critex
from critex.data.transition import pairs
from critex.embedding import Embedding
from critex.explorers import Setting
from critex.explorers._alpha import Alpha
from critex.plugins._common import (
    JointTraining,
    build_explorer,
    explorer_options,
    flattened,
    require_version,
)

PLUGINS = [("sb3", "stable-baselines3", "2.9"), ("torchrl", "torchrl", "0.14"), ("rllib", "ray", "2.60")]


def forget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the plug-in had not been imported."""
    monkeypatch.delitem(sys.modules, f"critex.plugins.{name}", raising=False)
    monkeypatch.delitem(sys.modules, f"critex.{name}", raising=False)
    monkeypatch.delitem(vars(critex), name, raising=False)


@pytest.mark.parametrize(("name", "package", "supported"), PLUGINS)
def test_an_unsupported_version_is_refused_on_import(
    name: str, package: str, supported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(name, monkeypatch)
    monkeypatch.setattr("critex.plugins._common.version", lambda _: "1.0.3")
    with pytest.raises(critex.UserError) as error:
        getattr(critex, name)
    assert str(error.value) == (
        f"critex.{name} supports {package} {supported}.x, but 1.0.3 is installed; "
        f'pip install "{package}=={supported}.*"'
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("counts", {"scope": "epsiodic"}, "unknown scope 'epsiodic'; did you mean episodic"),
        ("counts", {"of": "state-action"}, "unknown of 'state-action'; did you mean state_action"),
        ("cae", {"embedding": "next"}, "unknown embedding 'next'"),
        ("cae", {"zero_first": "no"}, "zero_first is 'no'; it must be True or False"),
        ("cae+rnd", {"first": {"ridge": 2.0}}, "first takes EllipticalConfig(…), not a dict"),
    ],
)
def test_wrong_options_are_one_line(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(critex.UserError) as error:
        explorer_options(name, options)
    assert message in str(error.value)


@pytest.mark.parametrize(("name", "package", "supported"), PLUGINS)
def test_a_missing_library_names_the_extra(
    name: str, package: str, supported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    forget(name, monkeypatch)
    monkeypatch.setattr("critex.plugins._common.version", missing)
    with pytest.raises(critex.UserError) as error:
        getattr(critex, name)
    assert str(error.value) == f'{package} is not installed; pip install "critex[{name}]"'


@pytest.mark.skipif(
    find_spec("ray") is None or find_spec("tree") is not None, reason="needs Ray without RLlib"
)
def test_ray_without_rllib_names_the_extra() -> None:
    with pytest.raises(critex.UserError, match=r"Ray is installed without RLlib .*critex\[rllib\]"):
        critex.rllib  # noqa: B018


def test_supported_versions() -> None:
    require_version("numpy", np.__version__.split(".")[0], "sb3")
    with pytest.raises(critex.UserError, match="is installed"):
        require_version("numpy", "0.1", "sb3")


def test_phi_of_many_rows_is_computed_in_parts() -> None:
    space = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (3,)), "b": gym.spaces.Box(-1, 1, (2, 2))})
    obs = {"a": torch.randn(5, 2, 3), "b": torch.randn(5, 2, 2, 2)}
    sizes: list[int] = []

    def embed(obs: dict[str, torch.Tensor]) -> torch.Tensor:
        sizes.append(len(obs["a"]))
        return torch.cat([obs["a"], obs["b"].flatten(1)], dim=1)

    with torch.no_grad():
        phi = flattened(embed, obs, space, rows=4)
    assert sizes == [4, 4, 2]
    assert torch.equal(phi, torch.cat([obs["a"], obs["b"].flatten(2)], dim=-1))
    assert (
        torch.equal(flattened(embed, obs, space, rows=4), phi) and sizes[-1] == 10
    )  # with gradient: all at once


def test_joint_training_adds_the_gradient_of_the_explorer_to_that_of_the_critic() -> None:
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
    critic = torch.optim.SGD(trunk.parameters(), lr=0.1)
    embedding = Embedding.of(trunk.forward, 8, gym.spaces.Discrete(2), takes_action=False)
    explorer = build_explorer(
        "cae_plus", Alpha(0.1), explorer_options("cae_plus", {}), Setting(embedding), rollouts=True
    )
    batch = pairs(torch.randn(6, 3), torch.randint(2, (6,)), torch.randn(6, 3))
    training = JointTraining(explorer, critic, lambda _: batch, seed=0)
    training.attach()
    weight, u = trunk[0].weight, explorer.learned()[0]
    before, u_before = weight.detach().clone(), u.detach().clone()
    (gradient,) = torch.autograd.grad(explorer.loss(batch), [weight])
    weight.grad = torch.ones_like(weight)  # the critic's own
    critic.step()
    torch.testing.assert_close(weight, before - 0.1 * (1.0 + gradient))
    assert not torch.equal(u, u_before) and training.loss is not None
    training.detach()
    before = weight.detach().clone()
    weight.grad = torch.zeros_like(weight)
    critic.step()
    assert torch.equal(weight, before)

    again = JointTraining(explorer, critic, lambda _: None, seed=1)
    again.load_state_dict(training.state_dict())
    assert torch.equal(again.generator.get_state(), training.generator.get_state())
    again.step()  # nothing to learn from yet
    assert again.loss is None


@pytest.mark.parametrize("name", ["audit", "sb3", "torchrl"])
def test_a_plug_in_can_be_imported_by_its_short_name(name: str) -> None:
    if name != "audit":
        pytest.importorskip({"sb3": "stable_baselines3"}.get(name, name))
    short, whole = import_module(f"critex.{name}"), import_module(f"critex.plugins.{name}")
    assert short is whole is getattr(critex, name)
