import gymnasium as gym
import numpy as np
import pytest
import torch

from critex.envs.habitat import observation_space as sensors
from critex.errors import UserError
from critex.networks.visual import Camera, Kind, RecurrentActorCritic


@pytest.mark.parametrize("kind, policy", [("resnet50", 12_525_221), ("resnet18", 8_546_725)])
def test_the_papers_networks_have_its_sizes(kind: Kind, policy: int) -> None:
    net = RecurrentActorCritic(sensors(256, 256), 4, kind, "lstm", layers=2, width=512)
    assert sum(p.numel() for p in net.parameters()) == policy
    # E3B's encoder: the same trunk and three layers of 512
    encoder = sum(p.numel() for p in net.trunk.parameters()) + 577 * 512 + 2 * 513 * 512
    assert encoder == {"resnet50": 8_944_128, "resnet18": 4_965_632}[kind]
    assert net.trunk.dim == 576


def observations(*shape: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "rgb": torch.randint(0, 256, (*shape, 64, 64, 3), generator=generator, dtype=torch.uint8),
        "depth": torch.rand(*shape, 64, 64, 1, generator=generator),
        "gps": torch.randn(*shape, 2, generator=generator),
        "compass": torch.randn(*shape, 1, generator=generator),
    }


def test_the_trunk_sees_one_observation_at_a_time() -> None:
    net = RecurrentActorCritic(sensors(64, 64), 4, "resnet18", "gru", width=32)
    obs = observations(3, 2)
    net.trunk.learn(obs)
    phi = net.embed(obs)
    assert phi.shape == (3, 2, 576)
    torch.testing.assert_close(net.embed({k: v[1] for k, v in obs.items()}), phi[1], atol=1e-4, rtol=1e-4)
    phi.sum().backward()
    assert all(p.grad is not None for p in net.trunk.parameters())


def test_the_cameras_moments_are_those_of_all_it_learned() -> None:
    space = sensors(64, 64)
    camera = Camera(space["rgb"], space["depth"], "resnet18")  # type: ignore[arg-type]
    obs = observations(12)
    for part in (slice(0, 5), slice(5, 6), slice(6, 12)):
        camera.learn(obs["rgb"][part], obs["depth"][part])
    image = camera.image(obs["rgb"], obs["depth"])
    torch.testing.assert_close(camera.mean.flatten(), image.mean((0, 2, 3)), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        camera.var.flatten(), image.var((0, 2, 3), unbiased=False), atol=1e-5, rtol=1e-3
    )


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_a_sequence_equals_its_steps(core: str) -> None:
    """Memory emptied at episode starts, in any of the environments."""
    space = gym.spaces.Box(-1, 1, (3,), np.float32)
    net = RecurrentActorCritic(space, 4, "compact", core, layers=2, width=8)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    phi = net.embed(torch.randn(9, 3, 3, generator=generator))
    previous = torch.randint(5, (9, 3), generator=generator)
    start = torch.rand(9, 3, generator=generator) < 0.3
    begin = tuple(torch.randn(2, 3, 8, generator=generator) for _ in net.memory(3))
    logits, value, after = net.unroll(phi, previous, start, begin)
    memory = begin
    for t in range(9):
        memory = tuple(part * (~start[t])[:, None] for part in memory)
        one, v, memory = net.unroll(
            phi[t][None], previous[t][None], torch.zeros(1, 3, dtype=torch.bool), memory
        )
        torch.testing.assert_close(one[0], logits[t])
        torch.testing.assert_close(v[0], value[t])
    for x, y in zip(memory, after, strict=True):
        torch.testing.assert_close(x, y)


def test_other_observations_are_refused() -> None:
    with pytest.raises(UserError, match="needs observations rgb, depth, gps and compass"):
        RecurrentActorCritic(gym.spaces.Box(-1, 1, (3,)), 4, "resnet50")
