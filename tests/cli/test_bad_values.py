"""Every number on a command line declares its range, and every value outside of it is one line."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

from critex import cli
from critex.algorithms import ALGORITHMS, algorithm_module
from critex.cli import main
from critex.cli.options import options_of
from critex.errors import UserError
from critex.explorers import EXPLORERS, explorer_class
from critex.ranges import Range, ranges_of
from critex.suite.manifest import Manifest

COMMANDS = [import_module(f"critex.cli.{name}") for name in cli.COMMANDS if name != "train"]
CONFIGS: dict[str, type[Any]] = {
    **{name: algorithm_module(name).Config for name in ALGORITHMS},
    **{name: explorer_class(name).Config for name in (*EXPLORERS, "e3b*noveld", "rnd+counts")},
    **{
        f"{module.__name__}.{name}": cls
        for module in COMMANDS
        for name, cls in vars(module).items()
        if name.endswith("Options") and dataclasses.is_dataclass(cls)
    },
    "manifest": Manifest,
}
NAN, INF, HUGE = float("nan"), float("inf"), 2**63


def number_of(hint: Any) -> type | None:
    """int or float, where the type holds numbers: also inside of Annotated, `X | None` and `tuple[X, ...]`."""
    if hint in (int, float):
        return hint  # type: ignore[no-any-return]
    if get_origin(hint) in (Annotated, Union, types.UnionType, tuple, list):
        return next(filter(None, map(number_of, get_args(hint))), None)
    return None


def numbers(cls: type[Any]) -> Iterator[tuple[str, Any, type]]:
    """(name, type, int or float) of the numeric fields."""
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        if kind := number_of(hints[field.name]):
            yield field.name, hints[field.name], kind


def bad_values(kind: type, bounds: Range) -> Iterator[float]:
    """NaN, infinities, an integer beyond 64 bits, and of -1, 0 and the neighbours of the bounds those outside."""
    yield from (NAN, INF, -INF, HUGE, -HUGE, 10**400)
    near = [
        b + d
        for b in (bounds.low, bounds.high, bounds.above, bounds.below)
        if b is not None
        for d in (-1, 0, 1)
    ]
    yield from (kind(value) for value in (-1, 0, *near) if kind(value) not in bounds)


def required(cls: type[Any]) -> dict[str, Any]:
    """Values of the fields without a default."""
    plain = {"name": "all" if "regret" in cls.__module__ else "", "episodes": 1, "version": 1, "budget": 1.0}
    return {
        f.name: plain.get(f.name, "")
        for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_every_number_declares_one_range(name: str) -> None:
    without = [field for field, hint, _ in numbers(CONFIGS[name]) if len(ranges_of(hint)) != 1]
    assert not without, f"{name}: {', '.join(without)} need a type of critex.ranges"


@pytest.mark.parametrize("name", CONFIGS)
def test_every_value_outside_its_range_is_refused_by_name(name: str) -> None:
    cls = CONFIGS[name]
    cls(**required(cls))
    for field, hint, kind in numbers(cls):
        many = "tuple" in str(hint)
        for value in bad_values(kind, ranges_of(hint)[0]):
            with pytest.raises(UserError, match=f"^{field} is ") as refused:
                cls(**{**required(cls), field: (8, value) if many else value})
            assert "it must be " in str(refused.value), field
            assert len(str(refused.value)) < 150


def test_the_sweep_sees_the_numbers() -> None:
    """Were `numbers` to find nothing, the sweep would pass; these are the fields that an attack found unchecked."""
    dqn, ppo = ({name for name, *_ in numbers(CONFIGS[a])} for a in ("dqn", "ppo"))
    assert {"gamma", "epsilon_start", "hidden", "updates_per_step", "alpha", "seed", "reward_clip"} <= dqn
    assert {"clip", "max_grad_norm", "target_kl", "actor_hidden", "minibatches"} <= ppo
    assert {"tau", "entropy_coef"} <= {name for name, *_ in numbers(CONFIGS["sac"])}
    assert {"u_dim", "ridge", "phi_norm", "warmup"} <= {name for name, *_ in numbers(CONFIGS["cae_plus"])}
    assert {"jobs", "budget"} <= {name for name, *_ in numbers(CONFIGS["critex.cli.suite.RunOptions"])}


@pytest.mark.parametrize("name", ["dqn", "sac", "td3", "dsac"])
def test_a_replay_buffer_holds_one_step_of_all_environments(name: str) -> None:
    with pytest.raises(UserError, match="buffer_size of at least 300"):
        CONFIGS[name](num_envs=300, buffer_size=200)
    CONFIGS[name](num_envs=300, buffer_size=300)


@pytest.mark.parametrize(
    ("name", "options", "fit"),
    [
        ("ppo", {}, "--minibatches 1024 would"),  # of 2048 steps
        ("ppo", {"rollout": 1}, "--rollout 2 --minibatches 1 would"),
        ("ppo", {"rollout": 2**60, "steps": 2**63 - 1}, "--minibatches 65536 would"),
        ("ppo_recurrent", {}, "--minibatches 8 would"),  # of 8 environments
        ("ppo_recurrent", {"num_envs": 2**60}, "--minibatches 65536 would"),
    ],
)
def test_the_minibatches_that_fit_are_found_at_once(name: str, options: dict[str, int], fit: str) -> None:
    with pytest.raises(UserError, match=fit):
        CONFIGS[name](**options, minibatches=2**63 - 1)


def test_help_shows_ranges_beside_defaults() -> None:
    dqn = {option.name: option for option in options_of(CONFIGS["dqn"])}
    assert (dqn["steps"].default, dqn["steps"].bounds) == ("500000", "at least 1")
    assert dqn["gamma"].bounds == "between 0 and 1"
    assert (dqn["hidden"].default, dqn["hidden"].bounds) == ("120 84", "at least 1")
    assert (dqn["reward-clip"].default, dqn["reward-clip"].bounds) == ("", "above 0")  # X | None
    assert (dqn["stop-return"].bounds, dqn["env"].bounds) == ("", "")


@pytest.mark.parametrize("size", ["9223372036854775807", "1000000000000000"])
def test_networks_beyond_the_memory_are_one_line(
    size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "dqn", "--hidden", size, "--no-progress", "--out", str(tmp_path / "a")])
    err = capsys.readouterr().err
    assert (
        stop.value.code == 2
        and err.count("\n") == 1
        and "not enough memory; choose a smaller --hidden" in err
    )
