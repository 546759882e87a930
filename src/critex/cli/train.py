"""`critex train ALGORITHM`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields, make_dataclass
from itertools import pairwise
from typing import Any

from critex.cli.options import Option, Sections, options_of, parse
from critex.console import say
from critex.errors import UserError

PROG = "critex train"
FIRST = ("env", "steps", "explorer", "alpha", "preset", "seed", "out")
"""The options that most commands set."""


def main(args: list[str]) -> None:
    """Train an agent, and print where its run is."""
    from critex.algorithms import ALGORITHMS, algorithm_module

    if not args or args[0] in ("-h", "--help"):
        print(f"usage: {PROG} ALGORITHM [OPTIONS]\n\nalgorithms: {', '.join(ALGORITHMS)}\n")
        print(
            "critex help train ALGORITHM lists the options;\nwith --explorer NAME also those of that explorer."
        )
        return
    name, *rest = args
    require_algorithm(PROG, name)
    cfg = train_config(name, rest)
    from critex.run import Run

    with Run.create(name, cfg) as run:
        algorithm_module(name).train(cfg, run)
        say(f"finished: {run.path}")


def require_algorithm(prog: str, name: str) -> None:
    """Refuse an option in the place of the algorithm."""
    if name.startswith("-"):
        raise UserError(f"{name} comes after the algorithm, as in {prog} dqn --env CartPole-v1")


def train_config(name: str, args: list[str]) -> Any:
    """The options of `critex train`; flags override the preset, which overrides the defaults."""
    from critex.algorithms import algorithm_module

    config = algorithm_module(name).Config
    from critex.presets import default_config  # after the name has been checked, because it loads torch

    explorer, preset, env, device = (peek(args, flag) for flag in ("explorer", "preset", "env", "device"))
    preset = None if preset in ("none", "None") else preset
    default = default_config(name, explorer or config.explorer, preset, env, device)
    # The options --bonus.* depend on the explorer, so the type of that field is set here.
    typed = make_dataclass(
        config.__name__,
        [("bonus", type(default.bonus), field(default=default.bonus))],
        bases=(config,),
        kw_only=True,
        namespace={"__doc__": config.__doc__},
    )
    values = typed(**{f.name: getattr(default, f.name) for f in fields(default)})
    parsed: Any = parse(typed, f"{PROG} {name}", args, values, help_sections(name, default), bonus_flags)
    refuse_idle(args, parsed, name)
    if default.env.startswith(f"{parsed.env}?"):  # the preset adds the options of its task to the id
        parsed.env = default.env
    return config(**{f.name: getattr(parsed, f.name) for f in fields(default)})


def refuse_idle(args: list[str], cfg: Any, algorithm: str) -> None:
    """Refuse flags that would have no effect with the other options; presets may set them."""
    from critex.presets import presets, settings

    given = {arg.partition("=")[0].replace("_", "-") for arg in args}
    plain = cfg.explorer == "none" and "--explorer" not in given  # a sweep over explorers may name none

    def same_without_preset() -> bool:
        with_it, without = (settings(algorithm, "none", preset, cfg.env) for preset in (cfg.preset, None))
        return cfg.preset in presets() and with_it == without

    rules: tuple[tuple[str, Callable[[], bool], str], ...] = (
        ("--alpha", lambda: plain, "an explorer; add --explorer cae"),
        ("--preset", lambda: plain and same_without_preset(), "an explorer; add --explorer cae"),
        ("--recompute", lambda: plain, "an explorer; add --explorer cae"),
        ("--bonus-in", lambda: plain and cfg.bonus_in == "value", "an explorer; add --explorer cae"),
        ("--scale-value-bonus", lambda: plain, "an explorer; add --explorer cae"),
        ("--stop-return", lambda: cfg.stop_return is not None and not cfg.eval_every, "--eval-every"),
        (
            "--eval-every",
            lambda: cfg.stop_return is not None and cfg.eval_every > cfg.steps,
            f"more --steps, at least {cfg.eval_every}",
        ),
        ("--eval-episodes", lambda: not cfg.eval_every, "--eval-every"),
        ("--normalize-bonus", lambda: not cfg.normalize_reward, "--normalize-reward"),
        ("--bonus.rebuild-rows", lambda: not cfg.bonus.rebuild_every, "--bonus.rebuild-every"),
        ("--bonus.count-rows", lambda: cfg.bonus.scaling != "batch", "--bonus.scaling batch"),
    )
    for flag, idle, needed in rules:
        if flag in given and idle():
            raise UserError(f"{flag} has no effect without {needed}")


def bonus_flags() -> dict[str, str]:
    """The flags of all explorers, each with its explorer: `--bonus.ridge` → "--bonus.ridge with --explorer cae"."""
    from critex.explorers import EXPLORERS, explorer_class

    return {
        flag: f"{flag} with --explorer {name}"
        for name in reversed([*EXPLORERS])  # if several have the option, the first is suggested
        for option in options_of(explorer_class(name).Config, prefix="bonus.")
        for flag in option.flags
    }


def peek(args: list[str], flag: str) -> str | None:
    """The value of a flag before the real parsing; the last one counts."""
    found = None
    for arg, after in pairwise([*args, None]):
        if arg == f"--{flag}":
            found = after
        elif arg and arg.startswith(f"--{flag}="):
            found = arg.partition("=")[2]
    return found


def help_sections(name: str, default: Any) -> Sections:
    """The options by how often people need them: common, algorithm, bonus, bookkeeping."""
    from critex.explorers import ExplorationConfig
    from critex.run import RunConfig

    def named(config: type) -> set[str]:
        return {f.name.replace("_", "-") for f in fields(config)} - set(FIRST)

    options = options_of(type(default), default)
    bonus, run = named(ExplorationConfig), named(RunConfig)

    def is_bonus(option: Option) -> bool:
        return option.name.startswith("bonus.") or option.name in bonus

    by_name = {option.name: option for option in options}
    rest = [option for option in options if option.name not in FIRST]
    return {
        "most used": [by_name[n] for n in FIRST if n in by_name],
        name: [option for option in rest if not is_bonus(option) and option.name not in run],
        f"bonus ({default.explorer})": sorted(filter(is_bonus, rest), key=lambda option: "." in option.name),
        "bookkeeping": [option for option in rest if option.name in run],
    }
