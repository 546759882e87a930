"""Make a gymnasium environment from its id: built-ins, families from other packages, and errors that say what to do."""

from __future__ import annotations

import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import gymnasium as gym

from critex.errors import UserError, nearest, reason

BUILTIN = {
    "DeepSea": "critex.envs.deepsea:DeepSea",
    "RiverSwim": "critex.envs.riverswim:RiverSwim",
}


@dataclass(frozen=True)
class Family:
    """Environments of another package."""

    pattern: str  # regular expression of its ids
    imports: str  # importing this module registers them, or shows that they can be made
    install: str  # argument of pip install
    wrapper: str = ""  # "module:Wrapper" for every environment of the family
    defaults: str = ""  # "module:DICT", options of its environments unless the caller gives others


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
    "minihack": Family(
        r"MiniHack-.+",
        "minihack",
        "critex[minihack]",
        "critex.envs.minihack:MiniHack",
        "critex.envs.minihack:DEFAULTS",
    ),
    "nethack": Family(
        r"NetHack.+",
        "nle",
        "critex[minihack]",
        "critex.envs.minihack:MiniHack",
        "critex.envs.minihack:DEFAULTS",
    ),
    "habitat": Family(r"HabitatExplore-.+", "critex.envs.habitat", "habitat-lab"),
    "vizdoom_explore": Family(r"VizdoomExplore-.+", "critex.envs.vizdoom", "critex[vizdoom]"),
    "vizdoom": Family(r"(?i)vizdoom.+", "vizdoom.gymnasium_wrapper", "critex[vizdoom]"),
    "atari": Family(r"ALE/.+|.+NoFrameskip-v4", "ale_py", "ale-py"),
    "box2d": Family(r"(LunarLander|BipedalWalker|CarRacing).*-v\d+", "Box2D", "gymnasium[box2d]"),
}


def register() -> None:
    """Register DeepSea-N-v0 and RiverSwim-N-v0, N = 2 … 100, with gymnasium."""
    for name in BUILTIN:
        for size in range(2, 101):
            _register(name, size)


def make(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """One environment by id, which may include options: `Ant-v4?use_contact_forces=true`.

    `module:Id-v0` imports the module first, also from the current directory. If the id comes from a file, call
    `refuse_import` first. An unknown id, a missing package or a wrong option is a `UserError`.
    """
    env_id, _, query = env_id.partition("?")
    options = _options(query)
    if reserved := options.keys() & {"id", "disable_env_checker"}:
        raise UserError(f"{env_id} does not take the option {min(reserved)}")
    given = {**options, **kwargs}
    kwargs = dict(given)
    if ":" in env_id:
        _import(module_of(env_id), env_id)
    if builtin := re.fullmatch(rf"({'|'.join(BUILTIN)})-(\d+)-v0", env_id):
        _register(builtin[1], int(builtin[2]))
    name = family_of(env_id)
    family = FAMILIES[name] if name else None
    if family:
        try:
            import_module(family.imports)
        except ImportError as error:
            raise UserError(f'{env_id} cannot be made ({error}); pip install "{family.install}"') from error
    if family and family.defaults:
        kwargs = {**_named(family.defaults), **kwargs}
    # gymnasium would take the newest version of an id without one, and no preset would know the id
    if env_id.rpartition(":")[2] not in gym.registry:
        raise UserError(_unknown(env_id))
    wrap, own = _wrapper(family, kwargs)
    try:
        with warnings.catch_warnings():
            # the paper uses -v4, so users ask for it on purpose
            warnings.filterwarnings("ignore", message=".*is out of date.*")
            env: gym.Env[Any, Any] = gym.make(env_id, disable_env_checker=True, **kwargs)
    except UserError:
        raise
    except (gym.error.Error, ImportError) as error:
        raise UserError(_broken(env_id, error)) from error
    except Exception as error:
        if not given:  # a bug in the environment: show its traceback
            raise
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise UserError(f"{env_id} cannot be made with {shown[:200]}: {reason(error)[:300]}") from error
    wrapped: gym.Env[Any, Any] = wrap(env, **own)
    return wrapped


def module_of(env_id: str) -> str:
    """The module in `module:Id-v0`, which is imported to register the environment; empty if there is none."""
    return env_id.partition("?")[0].rpartition(":")[0]


def refuse_import(env_id: str, source: object) -> None:
    """Refuse an id from the file `source` that would import a module: opening a run must not execute its code."""
    if module := module_of(env_id):
        raise UserError(
            f"{source} asks to import the Python module {module!r} for its environment {env_id!r}; "
            "if you trust it, add --allow-import"
        )


def _import(module: str, env_id: str) -> None:
    if not all(part.isidentifier() for part in module.split(".")):
        raise UserError(f"{env_id} cannot be made: {module!r} is not the name of a module")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # at the end, so that installed packages cannot be shadowed
    try:
        import_module(module)
    except ImportError as error:
        raise UserError(
            f"{env_id} cannot be made: the module {module!r} cannot be imported ({error})"
        ) from error


def family_of(env_id: str) -> str | None:
    """The family of an id, whatever its options."""
    plain = env_id.partition("?")[0]
    return next((name for name, f in FAMILIES.items() if re.fullmatch(f.pattern, plain)), None)


def _wrapper(family: Family | None, kwargs: dict[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The wrapper of a family, and the options that it takes, which are removed from `kwargs`."""
    if family is None or not family.wrapper:
        return lambda env: env, {}
    wrapper = _named(family.wrapper)
    taken = [key for key in inspect.signature(wrapper).parameters if key in kwargs]
    return wrapper, {key: kwargs.pop(key) for key in taken}


def _named(path: str) -> Any:
    """The object that "module:name" names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _options(query: str) -> dict[str, Any]:
    """`a=1&b=true&c=text` as keywords; a value that is not JSON is text."""
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
    """Gymnasium's message and the newer versions of the environment, because gymnasium still lists MuJoCo's -v2 and -v3."""
    spec = gym.spec(env_id.rpartition(":")[2])
    newer = [
        other.id
        for other in gym.registry.values()
        if (other.namespace, other.name) == (spec.namespace, spec.name)
        and (other.version or 0) > (spec.version or 0)
    ]
    hint = f" (use {' or '.join(newer)})" if newer else ""
    return f"{env_id} cannot be made: {' '.join(str(error).split())}{hint}"


def _unknown(env_id: str) -> str:
    module, colon, name = env_id.rpartition(":")
    near = [module + colon + other for other in nearest(name, gym.registry)]
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif module:
        hint = f"the module {module!r} does not register it with gymnasium"
    else:
        hint = f"gymnasium's registry does not have it; write your own as my_module:{name or 'MyEnv-v0'}"
    return f"there is no environment {env_id!r}; {hint}"
