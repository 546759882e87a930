"""Exploration methods behind one protocol."""

from critex.explorers.base import Explorer, NoOptions, Setting
from critex.explorers.cae import CAE
from critex.explorers.cae_plus import CAEPlus, CAEPlusConfig
from critex.explorers.combination import Combination, CombinationConfig
from critex.explorers.counts import Counts, CountsConfig
from critex.explorers.e3b import E3B, E3BConfig
from critex.explorers.elliptical import Elliptical, EllipticalConfig
from critex.explorers.icm import ICM, ICMConfig
from critex.explorers.make import EXPLORERS, explorer_class, explorer_preset, make_explorer
from critex.explorers.mixing import ExplorationConfig, batch_bonus, clip_reward, value_bonus
from critex.explorers.none import NoExplorer
from critex.explorers.noveld import NovelD, NovelDConfig
from critex.explorers.presets import ALGORITHM_PRESETS, PRESETS, RIVALS, preset_options
from critex.explorers.ride import RIDE, RIDEConfig
from critex.explorers.rival import RivalConfig
from critex.explorers.rnd import RND

__all__ = [
    "ALGORITHM_PRESETS",
    "CAE",
    "E3B",
    "EXPLORERS",
    "ICM",
    "PRESETS",
    "RIDE",
    "RIVALS",
    "RND",
    "CAEPlus",
    "CAEPlusConfig",
    "Combination",
    "CombinationConfig",
    "Counts",
    "CountsConfig",
    "E3BConfig",
    "Elliptical",
    "EllipticalConfig",
    "ExplorationConfig",
    "Explorer",
    "ICMConfig",
    "NoExplorer",
    "NoOptions",
    "NovelD",
    "NovelDConfig",
    "RIDEConfig",
    "RivalConfig",
    "Setting",
    "batch_bonus",
    "clip_reward",
    "explorer_class",
    "explorer_preset",
    "make_explorer",
    "preset_options",
    "value_bonus",
]
