"""Environments: any gymnasium id as a vector env, and the built-in DeepSea-N-v0 and RiverSwim-N-v0."""

from critex.data import Episode
from critex.envs.families import FAMILIES, Family, family_of, make, register
from critex.envs.vector import Envs, episode_seed

__all__ = [
    "FAMILIES",
    "Envs",
    "Episode",
    "Family",
    "episode_seed",
    "family_of",
    "make",
    "register",
]

register()
