"""critex: the critic as an explorer.

Exploration bonuses from the value network that an RL algorithm already has.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from critex import envs
from critex.bonus import Gram
from critex.embedding import last_hidden
from critex.errors import UserError
from critex.facade import CAE, CAEPlus

__all__ = ["CAE", "CAEPlus", "Gram", "UserError", "last_hidden"]
__version__ = "0.1.0"

envs.register()

PLUGINS = ("audit", "rllib", "sb3", "torchrl")


def __getattr__(name: str) -> Any:
    """`critex.sb3` and its kin, imported when first asked for: each needs a library that may be absent."""
    if name in PLUGINS:
        return import_module(f"critex.plugins.{name}")
    raise AttributeError(f"module 'critex' has no attribute {name!r}")
