"""The two readings of the method, where the paper and its released code disagree.

Precedence everywhere: default < preset < what the user says.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from critex.errors import unknown

# Fields of an explorer's options. The defaults of the options are the paper's.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "strategy": "ucb",
        "scope": "lifelong",
        "zero_first": False,
        "scaling": "welford",
        "count_rows": False,
        "ridge": 1.0,
        "bias_in_bonus": True,
        "cross_episode_ends": False,
    },
    "official": {
        "strategy": "ucb_squared",
        "scope": "episodic",
        "zero_first": True,
        "scaling": "batch",
        "count_rows": True,
        "ridge": 0.1,
        "bias_in_bonus": False,
        "cross_episode_ends": True,
    },
}

# Fields of an algorithm's options that belong to the same reading.
ALGORITHM_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"reward_clip": None},
    "official": {"reward_clip": 1.0},
}

# The rivals in the comparison of E3B's authors, whose numbers the paper takes: α, and what their code does that our
# defaults do not. The two readings above are about CAE.
RIVALS: dict[str, dict[str, Any]] = {
    "e3b": {
        "alpha": 1.0,
        "official": {"scaling": "batch", "count_rows": True, "cross_episode_ends": True},
    },
    "noveld": {"alpha": 1.0, "official": {"scaling": "batch", "count_rows": True}},
    "rnd": {"alpha": 0.001},
    "icm": {"alpha": 0.1, "official": {"cross_episode_ends": True}},
    "ride": {"alpha": 0.1, "official": {"cross_episode_ends": True}},
    "counts": {},
}


def preset_options(config: type[Any], preset: str, explorer: str = "cae") -> dict[str, Any]:
    """What a preset says about the options `config` of an explorer."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    if explorer in RIVALS:
        return dict(RIVALS[explorer].get(preset, {}))
    known = {field.name for field in fields(config)}
    return {name: value for name, value in PRESETS[preset].items() if name in known}
