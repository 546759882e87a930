"""The options of a run, and the conversion of dataclasses to plain dictionaries and back."""

from __future__ import annotations

import dataclasses
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from critex.errors import UserError, printable, unknown
from critex.ranges import Count, Finite, Natural, NonNegative, Options

T = TypeVar("T")


@dataclass
class RunConfig(Options):
    """The options of every run, whatever the algorithm; the config of an algorithm inherits them."""

    out: str = ""
    """Directory of the run, such as runs/a; empty: runs/<algorithm>-<date and time>."""

    seed: Natural = 0
    """Seed of everything: weights, actions, replay, environments."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the networks; auto uses a GPU if torch finds one."""

    threads: Natural = 1
    """Threads of torch and BLAS; 0 keeps their defaults. Exact resume needs the same number."""

    env_workers: Count = 1
    """Number of processes that the environments are split over; results do not depend on it."""

    log_every: Count = 1_000
    """Environment steps between two lines of training metrics."""

    eval_every: Natural = 0
    """Environment steps between two evaluations; 0: none."""

    eval_episodes: Count = 10
    """Episodes of one evaluation."""

    stop_return: Finite | None = None
    """Stop the run once the mean return of an evaluation reaches this."""

    checkpoint_every: Natural = 10_000
    """Environment steps between two checkpoints; 0: by time only."""

    checkpoint_minutes: NonNegative = 10.0
    """Minutes between two checkpoints, if they pass before `checkpoint_every` steps; 0: by steps only."""

    tensorboard: bool = True
    """Also log to TensorBoard, if it is installed."""

    wandb: bool = False
    """Also log to Weights & Biases."""

    progress: bool = True
    """Show progress: a bar on a terminal, otherwise a line every ten seconds."""


def to_dict(obj: Any) -> dict[str, Any]:
    """A dataclass as nested dictionaries, lists, strings, numbers and None; `from_dict` is the inverse."""
    return {f.name: _plain(getattr(obj, f.name), f.name) for f in dataclasses.fields(obj)}


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(f"{where} is of type {type(value).__name__}, which no config file can hold")


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one flat table with dotted names; control characters in text are written out."""
    items: dict[str, Any] = {}
    for key, value in table.items():
        name = prefix + printable(key)
        if isinstance(value, dict):
            items |= flat(value, f"{name}.")
        else:
            items[name] = printable(value) if isinstance(value, str) else value
    return items


def from_dict(cls: type[T], data: dict[str, Any], where: str = "") -> T:
    """Build the dataclass `cls` from nested dictionaries; a missing key takes the default of its field.

    Strict: an unknown key, a value of the wrong type, or a missing key without default is a `UserError` that
    names the key (dotted, prefixed with `where`). The only conversion is from int to float.
    """
    hints = get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise unknown("config key", where + key, [where + name for name in fields])
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _typed(hints[name], data[name], where + name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"config key {where + name!r} is missing")
    return cls(**values)


def _typed(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint`, or a UserError."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(args, value, where)
    if origin is Literal:
        if not any(value == arg and type(value) is type(arg) for arg in args):
            raise UserError(
                f"config key {where!r} is {value!r}; it must be one of {', '.join(map(repr, args))}"
            )
        return value
    if hint is None or hint is type(None):
        matches = value is None
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return from_dict(hint, value, where + ".")
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        matches = False
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif (origin or hint) is tuple and isinstance(value, list | tuple):
        if not args:
            return tuple(value)
        if len(args) == 2 and args[1] is Ellipsis:
            args = (args[0],) * len(value)
        matches = len(args) == len(value)
        if matches:
            return tuple(
                _typed(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(args, value, strict=True))
            )
    elif (origin or hint) is list and isinstance(value, list):
        return [_typed(args[0], v, f"{where}[{i}]") for i, v in enumerate(value)] if args else value
    elif (origin or hint) is dict and isinstance(value, dict):
        return {k: _typed(args[1], v, f"{where}.{k}") for k, v in value.items()} if args else value
    else:
        matches = type(value) is hint  # exact, so that True is not an int
    if not matches:
        name = getattr(hint, "__name__", str(hint)) if not args else str(hint)
        raise UserError(f"config key {where!r} is {value!r}; it must be of type {name}")
    return value


def _one_of(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    """`value` as the first of the types that accepts it."""
    if value is None and type(None) in hints:
        return None
    errors = []
    for hint in hints:
        if hint is type(None):
            continue
        try:
            return _typed(hint, value, where)
        except UserError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    names = " | ".join("None" if h is type(None) else getattr(h, "__name__", str(h)) for h in hints)
    raise UserError(f"config key {where!r} is {value!r}; it must be of type {names}")
