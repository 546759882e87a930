"""Networks for agents with a camera: a trunk φ of single observations, and a recurrent core above it.

`resnet50` and `resnet18` are the networks of the paper's Habitat experiment (DD-PPO's policy); `compact` is a small one
for CPUs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critex.data.tree import Tree
from critex.errors import UserError
from critex.networks.encoder import encoder
from critex.networks.mlp import mlp

Kind = Literal["compact", "resnet18", "resnet50"]
Memory = tuple[Tensor, ...]
"""(h, c) of an LSTM, (h,) of a GRU; each [layers, N, width]."""

PLANES, GROUPS, STAGES = 32, 16, {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
FEATURES = 2048  # approximate size of the convolutions' output
VARIANCE_FLOOR = 1e-2


class Residual(nn.Module):
    """relu(x + f(x)); f is two 3×3 convolutions, or a bottleneck 1×1, 3×3, 1×1 with four times the channels at its end."""

    def __init__(self, channels: int, planes: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        self.channels = planes * (4 if bottleneck else 1)
        if bottleneck:
            layers = [
                *_convolution(channels, planes, 1), nn.ReLU(True),
                *_convolution(planes, planes, 3, stride), nn.ReLU(True),
                *_convolution(planes, self.channels, 1),
            ]  # fmt: skip
        else:
            layers = [
                *_convolution(channels, planes, 3, stride),
                nn.ReLU(True),
                *_convolution(planes, planes, 3),
            ]
        self.body = nn.Sequential(*layers)
        same = stride == 1 and channels == self.channels
        self.shortcut = (
            nn.Sequential() if same else nn.Sequential(*_convolution(channels, self.channels, 1, stride))
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def _convolution(inputs: int, outputs: int, side: int, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False),
        nn.GroupNorm(GROUPS, outputs),
    ]


class ResNet(nn.Module):
    """A residual network with GroupNorm: 7×7 convolution, max pooling, four stages of widths 32, 64, 128, 256."""

    def __init__(self, inputs: int, kind: Kind) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, PLANES, 7, 2, 3, bias=False), nn.GroupNorm(GROUPS, PLANES), nn.ReLU(True),
            nn.MaxPool2d(3, 2, 1),
        ]  # fmt: skip
        channels = PLANES
        for stage, blocks in enumerate(STAGES[kind]):
            for i in range(blocks):
                stride = 2 if stage and not i else 1
                layers.append(block := Residual(channels, PLANES * 2**stage, stride, kind == "resnet50"))
                channels = block.channels
        self.layers, self.channels = nn.Sequential(*layers), channels

    def forward(self, x: Tensor) -> Tensor:
        cells: Tensor = self.layers(x)
        return cells


class Camera(nn.Module):
    """RGB and depth as 512 features: halved in size, normalised by running moments, then ResNet, 3×3 convolution, linear.

    The moments change only when `learn` is called, so that φ stays the same while a rollout is collected.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, rgb: gym.spaces.Box, depth: gym.spaces.Box, kind: Kind, width: int = 512) -> None:
        super().__init__()
        height, across, colours = rgb.shape
        channels = colours + depth.shape[-1]
        self.body = ResNet(channels, kind)
        self.register_buffer("mean", torch.zeros(1, channels, 1, 1))
        self.register_buffer("var", torch.zeros(1, channels, 1, 1))
        self.register_buffer("count", torch.zeros(()))
        with torch.no_grad():
            cells = self.body(torch.zeros(1, channels, height // 2, across // 2))[0, 0].numel()
        kept = max(round(FEATURES / cells), 1)
        self.compress = nn.Sequential(
            nn.Conv2d(self.body.channels, kept, 3, padding=1, bias=False),
            nn.GroupNorm(1, kept),
            nn.ReLU(True),
        )
        self.out, self.dim = nn.Linear(kept * cells, width), width

    def image(self, rgb: Tensor, depth: Tensor) -> Tensor:
        """[B, H, W, 3] bytes and [B, H, W, 1] → [B, 4, H/2, W/2]."""
        both = torch.cat([rgb.to(depth.dtype) / 255, depth], dim=-1).permute(0, 3, 1, 2)
        return F.avg_pool2d(both, 2)

    @torch.no_grad()
    def learn(self, rgb: Tensor, depth: Tensor) -> None:
        """Add a batch to the running moments, one mean and variance per channel."""
        x = self.image(rgb, depth)
        n, mean, var = float(len(x)), x.mean((0, 2, 3), True), x.var((0, 2, 3), unbiased=False, keepdim=True)
        total, delta = self.count + n, mean - self.mean
        m2 = self.var * self.count + var * n + delta.square() * self.count * n / total
        self.mean += delta * n / total
        self.var.copy_(m2 / total)
        self.count.copy_(total)

    def forward(self, rgb: Tensor, depth: Tensor) -> Tensor:
        x = self.image(rgb, depth)
        x = (x - self.mean) / self.var.clamp(min=VARIANCE_FLOOR).sqrt()
        return F.relu(self.out(self.compress(self.body(x)).flatten(1)))


class HabitatTrunk(nn.Module):
    """φ(s) = [camera 512; compass 32; gps 32] of a dict with `rgb`, `depth`, `gps` [2] and `compass` [1]."""

    def __init__(self, space: gym.Space[Any], kind: Kind) -> None:
        super().__init__()
        wanted = {"rgb", "depth", "gps", "compass"}
        if not isinstance(space, gym.spaces.Dict) or not wanted <= set(space.spaces):
            raise UserError(
                f"network {kind} needs observations rgb, depth, gps and compass, not {space}; use network=compact, or "
                "an environment with them, such as VizdoomExplore-train-v0?sensors=habitat"
            )
        rgb, depth = space["rgb"], space["depth"]
        assert isinstance(rgb, gym.spaces.Box) and isinstance(depth, gym.spaces.Box)
        self.camera = Camera(rgb, depth, kind)
        self.compass, self.gps = nn.Linear(2, 32), nn.Linear(2, 32)
        self.dim = self.camera.dim + 64

    def learn(self, obs: Tree) -> None:
        """Update the camera's running moments with observations [..., …]."""
        assert isinstance(obs, dict)
        self.camera.learn(*(_flat(obs[key], 3) for key in ("rgb", "depth")))

    def forward(self, obs: Tree) -> Tensor:
        assert isinstance(obs, dict)
        angle = obs["compass"]
        assert isinstance(angle, Tensor)
        seen = self.camera(_flat(obs["rgb"], 3), _flat(obs["depth"], 3)).view(*angle.shape[:-1], -1)
        heading = self.compass(torch.cat([angle.cos(), angle.sin()], dim=-1))
        return torch.cat([seen, heading, self.gps(obs["gps"])], dim=-1)


def _flat(x: Tree, dims: int) -> Tensor:
    assert isinstance(x, Tensor)
    return x.reshape(-1, *x.shape[-dims:])


class CompactTrunk(nn.Module):
    """φ(s): the encoder of the observation space, then linear layers of these widths with ReLU."""

    def __init__(self, space: gym.Space[Any], hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.encode = encoder(space)
        self.layers = mlp([self.encode.dim, *hidden])
        self.dim = hidden[-1]

    def learn(self, obs: Tree) -> None:
        """No running moments to update."""

    def forward(self, obs: Tree) -> Tensor:
        phi: Tensor = self.layers(self.encode(obs))
        return phi


class RecurrentActorCritic(nn.Module):
    """Logits and V of a history: trunk φ(s_t) and the previous action → LSTM or GRU → two linear heads.

    The previous action is 0 at the start of an episode; action a is encoded as a + 1.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        actions: int,
        network: Kind = "compact",
        core: Literal["lstm", "gru"] = "lstm",
        layers: int = 1,
        width: int = 256,
        hidden: tuple[int, ...] = (256,),
    ) -> None:
        super().__init__()
        compact = network == "compact"
        self.trunk: CompactTrunk | HabitatTrunk = (
            CompactTrunk(observation_space, hidden) if compact else HabitatTrunk(observation_space, network)
        )
        self.previous = nn.Embedding(actions + 1, 32)
        recurrent = nn.LSTM if core == "lstm" else nn.GRU
        self.core = recurrent(self.trunk.dim + 32, width, layers)
        for name, weight in self.core.named_parameters():
            nn.init.zeros_(weight) if "bias" in name else nn.init.orthogonal_(weight)
        self.actor, self.critic = nn.Linear(width, actions), nn.Linear(width, 1)
        for head, gain in ((self.actor, 0.01), (self.critic, 1.0)):
            nn.init.orthogonal_(head.weight, gain)
            nn.init.zeros_(head.bias)

    def embed(self, obs: Tree) -> Tensor:
        """φ(s), [..., d], from one observation alone."""
        phi: Tensor = self.trunk(obs)
        return phi

    def memory(self, n: int) -> Memory:
        """The empty memory of n environments."""
        blank = next(self.parameters()).new_zeros(self.core.num_layers, n, self.core.hidden_size)
        return (blank, blank.clone()) if isinstance(self.core, nn.LSTM) else (blank,)

    def unroll(
        self, phi: Tensor, previous: Tensor, start: Tensor, memory: Memory
    ) -> tuple[Tensor, Tensor, Memory]:
        """(logits [T, N, A], values [T, N], memory after) of sequences φ [T, N, d].

        `previous` [T, N]: the previous actions, counted from 1. `start` [T, N]: first steps of episodes, before which the
        memory is reset.
        """
        x = torch.cat([phi, self.previous(previous)], dim=-1)
        cuts = (start.any(1).nonzero().flatten()).tolist()
        outputs = []
        for begin, end in pairwise(sorted({0, *cuts, len(x)})):
            kept = (~start[begin]).to(x.dtype)[:, None]
            memory = tuple(part * kept for part in memory)
            out, after = self.core(x[begin:end], memory if len(memory) == 2 else memory[0])
            memory = after if isinstance(after, tuple) else (after,)
            outputs.append(out)
        hidden = torch.cat(outputs)
        return self.actor(hidden), self.critic(hidden).squeeze(-1), memory
