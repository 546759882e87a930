"""`critex params minihack`: the paper's parameter table (Table 2), counted from the modules of a run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from critex.algorithms.impala import Config, Network
from critex.cli.options import parse
from critex.embedding import Embedding
from critex.errors import unknown
from critex.explorers import Setting, explorer_class

SUITES = ("minihack",)
TASKS = {
    "MultiRoom-N4, -N6, -N10-OpenDoor": 8,
    "MultiRoom-N4-Locked, -N6-Locked": 10,
    "Freeze-Horn, Freeze-Wand": 11,
    "Freeze-Random": 12,
    "LavaCross": 16,
}
"""Actions of the paper's nine tasks; its Table 2 has eleven."""
ACTIONS = 11
WIDTH = 1024  # of φ
SPACE = gym.spaces.Dict(
    {
        "glyphs": gym.spaces.Box(0, 5976, (21, 79), np.int16),
        "blstats": gym.spaces.Box(-(2**31), 2**31 - 1, (27,), np.int64),
        "message": gym.spaces.Box(0, 255, (256,), np.uint8),
    }
)
UNUSED_EMBEDDING = WIDTH * 64
"""A linear layer 1024 → 64 that the released code builds into its state embedding and never uses. Not built here."""


@dataclass(frozen=True)
class Sizes:
    """Numbers of parameters with A actions."""

    base: int  # IMPALA's network, including its unused layer
    unused: int  # that layer
    embedding: int  # a separate state embedding, including its unused layer
    forward: int  # forward dynamics
    inverse: int  # inverse dynamics on φ
    plus_128: int  # CAE+: U of 128 rows and its inverse dynamics
    plus_256: int


@cache
def sizes(actions: int) -> Sizes:
    """Count the modules of the paper's runs on MiniHack."""
    with torch.device("meta"):
        network = Network(SPACE, actions, Config(network="paper", unused_layers=True))
    icm = explorer("icm", actions, width=WIDTH, hidden=256)
    plus = [explorer("cae_plus", actions, u_dim=rows, hidden=256) for rows in (128, 256)]
    return Sizes(
        count(network),
        count(network.unused),
        count(icm.encoder) + UNUSED_EMBEDDING,
        count(icm.forward_model),
        count(icm.inverse),
        *(count(module) for module in plus),
    )


def explorer(name: str, actions: int = ACTIONS, **options: Any) -> Any:
    """An explorer of the paper's network."""
    embedding = Embedding.of(lambda obs: obs, WIDTH, gym.spaces.Discrete(actions), takes_action=False)
    cls = explorer_class(name)
    return cls(cls.Config(**options), Setting(embedding, SPACE, nethack="paper"))


def count(module: nn.Module) -> int:
    """The number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def methods(n: Sizes) -> dict[str, int]:
    """Parameters that each method adds to the base network, counted as in Table 2: for RND and NovelD one embedding each."""
    dynamics = n.embedding + n.forward + n.inverse
    return {
        "ICM": dynamics,
        "RIDE": dynamics,
        "RND": n.embedding,
        "NovelD": n.embedding,
        "E3B": n.embedding + n.inverse,
        "CAE": 0,
        "CAE+, U of 128 rows": n.plus_128,
        "CAE+, U of 256 rows": n.plus_256,
        "CAE+ without U": n.inverse,
    }


def report() -> str:
    """The table for eleven actions, the layers that are never used, and the parameters of every task."""
    every = {actions: sizes(actions) for actions in TASKS.values()}
    n = every[ACTIONS]
    lines = [
        f"Parameters on MiniHack ({ACTIONS} actions, as in Table 2 of the paper)",
        "",
        *(
            f"  {name:<34}{size:>12,}"
            for name, size in (
                ("base: IMPALA's network", n.base),
                ("separate state embedding", n.embedding),
                ("forward dynamics", n.forward),
                ("inverse dynamics", n.inverse),
                ("CAE+: U of 128 rows and its inverse", n.plus_128),
            )
        ),
        "",
        "  Never used in the released code, and not built here unless --unused-layers asks for it:",
        f"  {'a linear layer in the base':<34}{n.unused:>12,}   leaves {n.base - n.unused:,}",
        f"  {'one in the embedding (never built)':<34}{UNUSED_EMBEDDING:>12,}   leaves {n.embedding - UNUSED_EMBEDDING:,}",
        "",
        f"  {'method':<34}{'added':>12}{'% of base':>12}",
    ]
    lines += [f"  {name:<34}{added:>12,}{100 * added / n.base:>12.3f}" for name, added in methods(n).items()]
    rnd, noveld = explorer("rnd", width=WIDTH, linear=False), explorer("noveld", width=WIDTH)
    lines += [
        "",
        "  Table 2 counts one embedding each for RND and NovelD. With everything that they have, frozen or not:",
        f"  {'RND: predictor and target':<34}{count(rnd):>12,}",
        f"  {'NovelD: encoder and both heads':<34}{count(noveld):>12,}",
    ]
    lines += ["", f"  {'task':<34}{'actions':>8}{'base':>13}{'inverse':>11}{'CAE+ 128':>11}{'CAE+ 256':>11}"]
    for task, actions in TASKS.items():
        m = every[actions]
        lines.append(
            f"  {task:<34}{actions:>8}{m.base:>13,}{m.inverse:>11,}{m.plus_128:>11,}{m.plus_256:>11,}"
        )
    return "\n".join(lines)


@dataclass
class Options:
    """Count the parameters of the paper's networks: layer groups, methods and tasks."""

    name: str
    """Which table; minihack is Table 2."""


def main(args: list[str]) -> None:
    """Print the table."""
    name = parse(Options, "critex params", args).name
    if name not in SUITES:
        raise unknown("parameter table", name, SUITES)
    print(report())
