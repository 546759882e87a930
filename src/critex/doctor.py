"""`critex doctor`: does this installation work, and for which environments?"""

from __future__ import annotations

import platform
import warnings
from dataclasses import dataclass
from importlib import metadata

import gymnasium as gym
import torch

from critex.envs import make
from critex.errors import UserError, reason

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
    "stable-baselines3",
    "torchrl",
    "ray",
)
# One task of each family, to make and step.
PROBES = {
    "built-in": "DeepSea-10-v0",
    "classic control": "CartPole-v1",
    "MuJoCo": "Swimmer-v4",
    "MiniGrid": "MiniGrid-Empty-5x5-v0",
    "MiniHack": "MiniHack-Room-5x5-v0",
    "ViZDoom": "VizdoomExplore-train-v0",
}


@dataclass(frozen=True)
class Probe:
    """The result for one family; `error` says what to install, and is empty if the task works."""

    family: str
    env_id: str
    error: str = ""

    @property
    def state(self) -> str:
        """The result in words."""
        return self.error or "works"


def probe(family: str) -> Probe:
    """Make the task of a family, reset it and take one step."""
    env_id = PROBES[family]
    try:
        with warnings.catch_warnings(action="ignore"):  # of other packages
            env = make(env_id)
            env.reset(seed=0)
            env.step(env.action_space.sample())
            env.close()
    except (UserError, ImportError, OSError, RuntimeError, gym.error.Error) as error:
        return Probe(family, env_id, reason(error))
    return Probe(family, env_id)


def report_habitat() -> bool:
    """Print the Habitat checks one by one; return whether all passed."""
    from critex.envs.habitat import check

    problems = 0
    for tried, problem in check():
        print(f"failed: {tried}: {problem}" if problem else f"ok: {tried}", flush=True)
        problems += bool(problem)
    return not problems


def version(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def report() -> None:
    """Print the results."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    packages = Table("package", "version", title="Packages", title_justify="left")
    packages.add_row("python", platform.python_version())
    for name in PACKAGES:
        packages.add_row(name, version(name) or "not installed")
    console.print(packages)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none, everything runs on the CPU"
    console.print(f"GPU: {gpu}; torch threads: {torch.get_num_threads()}")
    families = Table("environments", "tried", "state", title="Environments", title_justify="left")
    for name in PROBES:
        found = probe(name)
        families.add_row(found.family, found.env_id, escape(found.state))
    console.print(families)
