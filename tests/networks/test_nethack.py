"""The network of the paper's MiniHack runs: every size by its arithmetic, the crop, the compact variant."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from critex.networks import encoder, mlp
from critex.networks.nethack import CROP, SIZES, NetHack, cropped, is_nethack, rows_of

SPACE = gym.spaces.Dict(
    {
        "blstats": gym.spaces.Box(-(2**31), 2**31 - 1, (27,), np.int64),
        "glyphs": gym.spaces.Box(0, 5976, (21, 79), np.int16),
        "message": gym.spaces.Box(0, 255, (256,), np.uint8),
    }
)


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def observation(*batch: int, seed: int = 0) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    blstats = torch.randint(0, 21, (*batch, 27), generator=rng)
    glyphs = torch.randint(0, 5976, (*batch, 21, 79), generator=rng).short()
    message = torch.randint(0, 256, (*batch, 256), generator=rng).to(torch.uint8)
    return {"blstats": blstats, "glyphs": glyphs, "message": message}


def test_layer_by_layer() -> None:
    with torch.device("meta"):
        net = NetHack(SPACE, "paper")
        fc2 = mlp([net.dim, net.dim])
    assert size(net.glyphs) == 382_464
    assert size(net.map) == size(net.crop) == 17_352
    assert size(net.status) == 5_952
    assert size(net.message) == 8_192 + 14_400 + 28_736 + 49_408 + 49_344
    assert net.join.in_features == 14_048 and size(net.join) == 14_386_176
    assert size(net) + size(fc2) == 16_008_976


@pytest.mark.parametrize("name", SIZES)
def test_any_batch_shape(name: str) -> None:
    torch.manual_seed(0)
    net = NetHack(SPACE, name)
    obs = observation(2, 3)
    with torch.no_grad():
        out = net(obs)
        rows = net({key: x.flatten(0, 1) for key, x in obs.items()})
        one = net({key: x[1, 2] for key, x in obs.items()})
    assert out.shape == (2, 3, net.dim) and one.shape == (net.dim,)
    assert torch.allclose(out.flatten(0, 1), rows, atol=1e-5) and torch.allclose(out[1, 2], one, atol=1e-5)


def test_every_part_of_the_screen_counts() -> None:
    torch.manual_seed(0)
    net, obs = NetHack(SPACE, "compact"), observation(1)
    with torch.no_grad():
        before = net(obs)
        for key, where in (("glyphs", (0, 20, 78)), ("blstats", (0, 26)), ("message", (0, 3))):
            changed = {k: x.clone() for k, x in obs.items()}
            changed[key][where] += 1
            assert not torch.equal(net(changed), before), key


def test_a_message_is_encoded_once_however_often_it_occurs() -> None:
    """The numbers and the gradients are those of encoding every row."""
    torch.manual_seed(0)
    net, obs = NetHack(SPACE, "compact"), observation(6)
    obs["message"][[1, 2, 4]] = 0
    obs["message"][5] = obs["message"][0]
    rows: list[int] = []
    net.message.register_forward_hook(lambda _, inputs, __: rows.append(len(inputs[0])))
    out = net(obs)
    out.sum().backward()
    together = [p.grad.clone() for p in net.message.parameters()]
    net.zero_grad()
    each = torch.cat([net({key: x[i : i + 1] for key, x in obs.items()}) for i in range(6)])
    each.sum().backward()
    assert rows[0] == 3
    torch.testing.assert_close(out, each, rtol=1e-4, atol=1e-5)
    for ours, p in zip(together, net.message.parameters(), strict=True):
        torch.testing.assert_close(ours, p.grad, rtol=1e-3, atol=1e-4)


def test_rows_of_a_weight_and_their_gradient_are_an_embedding_s() -> None:
    torch.manual_seed(0)
    embedding, ids = nn.Embedding(7, 3), torch.randint(0, 7, (2, 4, 5))
    weight, slope = embedding.weight.detach().clone().requires_grad_(), torch.randn(2, 4, 5, 3)
    rows = rows_of(weight, ids)
    torch.testing.assert_close(rows, embedding(ids), rtol=0, atol=0)
    rows.backward(slope)
    embedding(ids).backward(slope)
    torch.testing.assert_close(weight.grad, embedding.weight.grad)


def test_the_crop_by_hand() -> None:
    glyphs = torch.arange(21 * 79).view(1, 21, 79).expand(2, -1, -1)
    x, y = torch.tensor([40, 0]), torch.tensor([10, 20])
    crop = cropped(glyphs, x, y, torch.tensor(CROP))
    assert crop.shape == (2, 9, 9)
    for i, (column, row) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        for r, dr in enumerate(range(-5, 4)):
            for c, dc in enumerate(range(-5, 4)):
                inside = 0 <= row + dr < 21 and 0 <= column + dc < 79
                assert crop[i, r, c] == (79 * (row + dr) + column + dc if inside else 0)


def test_the_encoder_of_the_space() -> None:
    assert is_nethack(SPACE) and not is_nethack(gym.spaces.Dict({"glyphs": SPACE["glyphs"]}))
    assert isinstance(encoder(SPACE), NetHack) and encoder(SPACE).dim == 256
    with torch.device("meta"):
        assert encoder(SPACE, "paper").dim == 1024
