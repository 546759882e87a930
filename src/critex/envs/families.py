"""From an id to one gymnasium environment: built-ins, families behind extras, errors that say what to do."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl

import gymnasium as gym

from critex.errors import UserError

BUILTIN = {
    "DeepSea": "critex.envs.deepsea:DeepSea",
    "RiverSwim": "critex.envs.riverswim:RiverSwim",
}


@dataclass(frozen=True)
class Family:
    """Ids that another package provides."""

    pattern: str  # what its ids look like
    imports: str  # importing this registers them, or shows that they can be made
    install: str  # what to give to pip
    wrapper: str = ""  # "module:Wrapper", put around every environment of the family


FAMILIES = {
    "mujoco": Family(
        r"(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedDoublePendulum|InvertedPendulum"
        r"|Pusher|Reacher|Swimmer|Walker2d)-v\d+",
        "mujoco",
        "critex[mujoco]",
    ),
    "minigrid": Family(
        r"(MiniGrid|BabyAI)-.+", "minigrid", "critex[minigrid]", "critex.envs.minigrid:MiniGrid"
    ),
    "minihack": Family(r"MiniHack-.+", "minihack", "critex[minihack]"),
    "nethack": Family(r"NetHack.+", "nle", "critex[minihack]"),
    "habitat": Family(r"HabitatExplore-.+", "critex.envs.habitat", "habitat-lab"),
    "vizdoom_explore": Family(r"VizdoomExplore-.+", "critex.envs.vizdoom", "critex[vizdoom]"),
    "vizdoom": Family(r"(?i)vizdoom.+", "vizdoom.gymnasium_wrapper", "critex[vizdoom]"),
    "atari": Family(r"ALE/.+|.+NoFrameskip-v4", "ale_py", "ale-py"),
    "box2d": Family(r"(LunarLander|BipedalWalker|CarRacing).*-v\d+", "Box2D", "gymnasium[box2d]"),
}


def register() -> None:
    """Make DeepSea-N-v0 and RiverSwim-N-v0, N = 2 … 100, known to `gymnasium.make`."""
    for name in BUILTIN:
        for size in range(2, 101):
            _register(name, size)


def make(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """One environment by id, which may carry options of its own: `Ant-v4?use_contact_forces=true`.

    An unknown id, a missing package or a wrong keyword ends in a `UserError`.
    """
    env_id, _, query = env_id.partition("?")
    kwargs = {**_options(query), **kwargs}
    if builtin := re.fullmatch(rf"({'|'.join(BUILTIN)})-(\d+)-v0", env_id):
        _register(builtin[1], int(builtin[2]))
    name = family_of(env_id)
    family = FAMILIES[name] if name else None
    if family:
        try:
            import_module(family.imports)
        except ImportError as error:
            raise UserError(f'{env_id} cannot be made ({error}); pip install "{family.install}"') from error
    wrap, own = _wrapper(family, kwargs)
    try:
        with warnings.catch_warnings():
            # the paper's ids are -v4; that -v5 exists is no news to who asked for it
            warnings.filterwarnings("ignore", message=".*is out of date.*")
            env: gym.Env[Any, Any] = gym.make(env_id, disable_env_checker=True, **kwargs)
    except (gym.error.Error, ImportError) as error:
        raise UserError(_broken(env_id, error) if env_id in gym.registry else _unknown(env_id)) from error
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise UserError(f"{env_id} does not take all of {', '.join(kwargs)}: {error}") from error
    wrapped: gym.Env[Any, Any] = wrap(env, **own)
    return wrapped


def family_of(env_id: str) -> str | None:
    """The name of the family that an id belongs to, its options aside."""
    plain = env_id.partition("?")[0]
    return next((name for name, f in FAMILIES.items() if re.fullmatch(f.pattern, plain)), None)


def _wrapper(family: Family | None, kwargs: dict[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """What to put around the environments of a family, and the keywords that it takes, out of `kwargs`."""
    if family is None or not family.wrapper:
        return lambda env: env, {}
    module, _, name = family.wrapper.partition(":")
    wrapper = getattr(import_module(module), name)
    taken = [key for key in inspect.signature(wrapper).parameters if key in kwargs]
    return wrapper, {key: kwargs.pop(key) for key in taken}


def _options(query: str) -> dict[str, Any]:
    """`a=1&b=true&c=text` as keywords; a value is JSON where it can be read so, else text."""
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _register(name: str, size: int) -> None:
    env_id = f"{name}-{size}-v0"
    if env_id not in gym.registry:
        gym.register(env_id, entry_point=BUILTIN[name], kwargs={"size": size})


def _broken(env_id: str, error: Exception) -> str:
    """What gymnasium says, on one line, and the newer versions: it still lists MuJoCo's -v2 and -v3."""
    spec = gym.spec(env_id)
    newer = [
        other.id
        for other in gym.registry.values()
        if (other.namespace, other.name) == (spec.namespace, spec.name)
        and (other.version or 0) > (spec.version or 0)
    ]
    hint = f" (use {' or '.join(newer)})" if newer else ""
    return f"{env_id} cannot be made: {' '.join(str(error).split())}{hint}"


def _unknown(env_id: str) -> str:
    near = difflib.get_close_matches(env_id, list(gym.registry), n=3, cutoff=0.6)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else "gymnasium.pprint_registry() lists what is installed"
    )
    return f"there is no environment {env_id!r}; {hint}"
