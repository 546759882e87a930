"""Any observation as a vector: shapes, layouts, scales, dicts, gradients."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from critex.errors import UserError
from critex.networks import Flatten, encoder, is_flat
from critex.networks.encoder import Entries, Image

HWC = gym.spaces.Box(0, 255, (16, 12, 3), np.uint8)
CHW = gym.spaces.Box(0, 255, (3, 16, 12), np.uint8)
DICT = gym.spaces.Dict(
    {"image": HWC, "compass": gym.spaces.Discrete(4), "speed": gym.spaces.Box(-1, 1, (2,))}
)


def image(*batch: int) -> torch.Tensor:
    return torch.randint(
        256, (*batch, 16, 12, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


@pytest.mark.parametrize(
    ("space", "kind", "dim"),
    [
        (gym.spaces.Box(-1, 1, (5,)), Flatten, 5),
        (gym.spaces.Box(-1, 1, (2, 3)), Flatten, 6),
        (gym.spaces.Discrete(7), Flatten, 7),
        (gym.spaces.Box(0, 1, (7, 7, 21), np.uint8), Image, 3 * 3 * 32),
        (HWC, Image, 3 * 2 * 64),  # 16 × 12 → 7 × 5 → 3 × 2 cells
        (CHW, Image, 3 * 2 * 64),
        (gym.spaces.Box(0, 1, (84, 84, 1), np.uint8), Image, 4 * 4 * 64),  # → 41 → 20 → 9 → 4
        (gym.spaces.Box(0, 1, (2, 9, 1), np.uint8), Image, 1 * 4 * 32),  # the short side is padded
        (DICT, Entries, 4 + 3 * 2 * 64 + 2),
    ],
)
def test_which_encoder_and_its_length(space: gym.Space[Any], kind: type, dim: int) -> None:
    encode = encoder(space)
    assert isinstance(encode, kind) and encode.dim == dim
    assert is_flat(space) == (kind is Flatten) == (not list(encode.parameters()))


@pytest.mark.parametrize("batch", [(), (5,), (4, 3)])
def test_leading_dimensions_are_kept(batch: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    encode = encoder(DICT)
    obs = {
        "image": image(*batch),
        "compass": torch.zeros(batch, dtype=torch.int64),
        "speed": torch.ones(*batch, 2),
    }
    whole = encode(obs)
    assert whole.shape == (*batch, encode.dim)
    if len(batch) == 2:  # each row by itself is the same
        alone = encode({key: value[1, 2] for key, value in obs.items()})
        torch.testing.assert_close(whole[1, 2], alone)


def test_channels_first_is_channels_last_transposed() -> None:
    torch.manual_seed(0)
    last, first = encoder(HWC), encoder(CHW)
    first.load_state_dict(last.state_dict())
    pictures = image(2, 3)
    torch.testing.assert_close(first(pictures.permute(0, 1, 4, 2, 3)), last(pictures))


def test_integers_are_divided_by_their_largest_value_and_real_numbers_are_not() -> None:
    torch.manual_seed(0)
    integers, real = encoder(HWC), encoder(gym.spaces.Box(0, 1, (16, 12, 3), np.float32))
    real.load_state_dict(integers.state_dict())
    torch.testing.assert_close(integers(image(2)), real(image(2).float() / 255))


def test_wide_ranges_of_integers_are_refused() -> None:
    with pytest.raises(UserError, match=r"integers from 0 to 2,147,483,647"):
        encoder(gym.spaces.Box(0, np.iinfo(np.int32).max, (8, 8, 3), np.int32))


def test_a_dict_is_its_entries_side_by_side() -> None:
    encode = encoder(DICT)
    assert isinstance(encode, Entries)
    obs = {
        "image": image(2),
        "compass": torch.tensor([0, 3]),
        "speed": torch.tensor([[0.5, 1.0], [2.0, 3.0]]),
    }
    parts = [entry(obs[key]) for key, entry in zip(DICT, encode.entries, strict=True)]
    assert torch.equal(encode(obs), torch.cat(parts, dim=-1))
    compass = list(DICT).index("compass")
    assert parts[compass].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    shuffled = {key: obs[key] for key in ("speed", "image", "compass")}  # the order of the space counts
    assert torch.equal(encode(shuffled), encode(obs))


def test_every_weight_gets_a_gradient() -> None:
    torch.manual_seed(0)
    encode = encoder(DICT)
    obs = {"image": image(4), "compass": torch.zeros(4, dtype=torch.int64), "speed": torch.ones(4, 2)}
    encode(obs).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encode.parameters())


def test_any_name_may_be_a_key() -> None:
    names = ("keys", "a.b", "forward", "")
    space = gym.spaces.Dict({name: gym.spaces.Box(-1, 1, (2,)) for name in names})
    obs = {name: torch.full((3, 2), float(i)) for i, name in enumerate(names)}
    wanted = torch.cat([obs[name] for name in space], dim=-1)
    assert torch.equal(encoder(space)(obs), wanted)


def test_two_dimensions_of_bytes_are_a_greyscale_image() -> None:
    torch.manual_seed(0)
    flat = encoder(gym.spaces.Box(0, 255, (16, 12), np.uint8))
    deep = encoder(gym.spaces.Box(0, 255, (16, 12, 1), np.uint8))
    deep.load_state_dict(flat.state_dict())
    pixels = image(4, 5)[..., 0]
    assert flat(pixels).shape == (4, 5, flat.dim)
    torch.testing.assert_close(flat(pixels), deep(pixels.unsqueeze(-1)))
    assert flat(pixels[0, 0]).shape == (flat.dim,)
