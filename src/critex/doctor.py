"""`critex doctor`: does this installation work, and for which environments?"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

import gymnasium as gym
import torch

from critex.envs import make
from critex.errors import UserError

PACKAGES = (
    "critex",
    "torch",
    "numpy",
    "scipy",
    "gymnasium",
    "tyro",
    "rich",
    "tensorboard",
    "wandb",
    "matplotlib",
)
# One task of each family, made and stepped for real.
PROBES = {
    "built-in": ("DeepSea-10-v0", ""),
    "classic control": ("CartPole-v1", ""),
    "MuJoCo": ("Swimmer-v4", "mujoco"),
    "MiniGrid": ("MiniGrid-Empty-5x5-v0", "minigrid"),
    "MiniHack": ("MiniHack-Room-5x5-v0", "minihack"),
    "ViZDoom": ("VizdoomBasic-v1", "vizdoom"),
}


@dataclass(frozen=True)
class Probe:
    """What came of trying one family."""

    family: str
    env_id: str
    works: bool
    advice: str


def probe(family: str) -> Probe:
    """Make the family's task, reset it and take one step."""
    env_id, extra = PROBES[family]
    try:
        env = make(env_id)
        env.reset(seed=0)
        env.step(env.action_space.sample())
        env.close()
    except (UserError, ImportError, OSError, RuntimeError, gym.error.Error) as error:
        advice = f'pip install "critex[{extra}]"' if extra else str(error).splitlines()[0]
        return Probe(family, env_id, False, advice)
    return Probe(family, env_id, True, "")


def version(package: str) -> str | None:
    """The installed version, if any."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def report() -> None:
    """Print the findings."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    packages = Table("package", "version", title="Packages", title_justify="left")
    packages.add_row("python", platform.python_version())
    for name in PACKAGES:
        packages.add_row(name, version(name) or "not installed")
    console.print(packages)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none; everything runs on the CPU"
    console.print(f"GPU: {gpu}; torch threads: {torch.get_num_threads()}")
    families = Table("environments", "tried", "state", title="Environments", title_justify="left")
    for name in PROBES:
        found = probe(name)
        families.add_row(found.family, found.env_id, "works" if found.works else f"missing: {found.advice}")
    console.print(families)
