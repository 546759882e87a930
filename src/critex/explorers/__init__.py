"""Exploration methods behind one protocol.

`EXPLORERS` maps names to methods. A method is imported when it is first used; its class and its options can also be
imported from here (`from critex.explorers import CAEPlusConfig`).
"""

from importlib import import_module
from typing import Any

from critex.explorers._make import EXPLORERS, explorer_class, make_explorer, split_combination
from critex.explorers.base import Explorer, NoOptions, Setting
from critex.explorers.mixing import ExplorationConfig, batch_bonus, clip_reward, value_bonus

__all__ = [
    "EXPLORERS",
    "ExplorationConfig",
    "Explorer",
    "NoOptions",
    "Setting",
    "batch_bonus",
    "clip_reward",
    "explorer_class",
    "make_explorer",
    "split_combination",
    "value_bonus",
]

_MODULES = {
    "acb": ("ACB", "ACBConfig"),
    "bdqn": ("BDQN", "BDQNConfig"),
    "cae": ("CAEExplorer",),
    "cae_plus": ("CAEPlusConfig", "CAEPlusExplorer"),
    "combination": ("Combination", "CombinationConfig"),
    "counts": ("Counts", "CountsConfig"),
    "e3b": ("E3B", "E3BConfig"),
    "elliptical": ("Elliptical", "EllipticalConfig"),
    "icm": ("ICM", "ICMConfig"),
    "none": ("NoExplorer",),
    "noveld": ("NovelD", "NovelDConfig"),
    "ride": ("RIDE", "RIDEConfig"),
    "rnd": ("RND", "RNDConfig"),
    "scaling": ("ScaledExplorer", "ScalingConfig"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
