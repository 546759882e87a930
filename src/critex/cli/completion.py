"""`critex completion`: tab completion for bash and zsh, as one script that needs no Python while you type."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from critex.cli import COMMANDS
from critex.cli.options import Option, options_of, parse
from critex.errors import UserError

RC_FILES = {"bash": ".bashrc", "zsh": ".zshrc"}


@dataclass
class Options:
    """Print the completion script, or install it: it is written to your data directory, and one line in .bashrc or
    .zshrc loads it. Install it again after an update."""

    shell: Literal["bash", "zsh"] | None = None
    """The shell; by default the one in $SHELL."""
    install: bool = False
    """Install the script instead of printing it."""


def main(args: list[str]) -> None:
    """Print or install the script."""
    options = parse(Options, "critex completion", args)
    shell = options.shell or Path(os.environ.get("SHELL", "")).name
    if shell not in RC_FILES:
        raise UserError(
            f"there is completion for bash and zsh, not for {shell or 'this shell'}; add --shell bash"
        )
    if not options.install:
        print(script(shell), end="")
        return
    from critex.run.files import disk_errors

    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    target, rc = data / "critex" / f"completion.{shell}", Path.home() / RC_FILES[shell]
    line = f"[ -r {shlex.quote(str(target))} ] && source {shlex.quote(str(target))}  # critex completion"
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(script(shell), encoding="utf-8")
        known = rc.read_text(encoding="utf-8", errors="surrogateescape") if rc.exists() else ""
        if line not in known.splitlines():
            with rc.open("a", encoding="utf-8") as file:
                file.write(f"{'' if known.endswith(chr(10)) or not known else chr(10)}{line}\n")
    print(f"installed: {target}, loaded by {rc}. Open a new {shell} to use it")


def script(shell: str) -> str:
    """The completion script; zsh reads the same one through its bash emulation."""
    words, values = candidates()
    contexts = "".join(
        f"        {shlex.quote(context)}) words={shlex.quote(' '.join(each))} ;;\n"
        for context, each in words.items()
    )
    choices = "".join(
        f"        {shlex.quote(flag)}) words={shlex.quote(' '.join(each))} ;;\n"
        for flag, each in values.items()
    )
    emulation = "autoload -Uz compinit bashcompinit\n(( $+functions[compdef] )) || compinit\nbashcompinit\n"
    return (emulation if shell == "zsh" else "") + TEMPLATE.format(
        nested="|".join(NESTED), contexts=contexts, choices=choices
    )


NESTED = ("train", "compare", "suite", "regret")
"""Commands whose options depend on the first argument."""

TEMPLATE = """\
_critex() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" context="" words=""
    if [ "$COMP_CWORD" -gt 1 ]; then context="${{COMP_WORDS[1]}}"; fi
    case "$context" in
        {nested}) if [ "$COMP_CWORD" -gt 2 ]; then context="$context ${{COMP_WORDS[2]}}"; fi ;;
    esac
    case "$context" in
{contexts}    esac
    case "$prev" in
{choices}    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _critex critex
"""


def candidates() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """(words for each context such as `train dqn`, values for each flag such as `--explorer`)."""
    from critex.algorithms import ALGORITHMS, algorithm_module
    from critex.cli import compare, params, regret
    from critex.cli.suite import ACTIONS
    from critex.explorers import EXPLORERS, explorer_class
    from critex.suite import SUITES
    from critex.tables.catalogue import table_names
    from critex.theory.suites import SUITES as PROBLEM_SUITES

    found: dict[str, list[Option]] = {}
    for name in COMMANDS:
        if name not in NESTED:
            found[name] = options_of(import_module(f"critex.cli.{name}").Options)
    for name, options in ACTIONS.items():
        found[f"suite {name}"] = options_of(options)
    found["regret run"], found["regret show"] = options_of(regret.RunOptions), options_of(regret.ShowOptions)
    bonus = [
        option for name in EXPLORERS for option in options_of(explorer_class(name).Config, prefix="bonus.")
    ]
    for name in ALGORITHMS:
        own = [option for option in options_of(algorithm_module(name).Config) if option.name != "bonus"]
        found[f"train {name}"] = [*own, *bonus]
        found[f"compare {name}"] = [*options_of(compare.Options), *own, *bonus]
    extra: dict[str, Iterable[str]] = {
        "doctor": ["habitat"],
        "params": params.SUITES,
        "table": table_names(),
        "suite run": SUITES,
        "suite show": SUITES,
        "regret run": PROBLEM_SUITES,
    }
    words = {
        "": [*COMMANDS, "help"],
        "help": list(COMMANDS),
        "train": list(ALGORITHMS),
        "compare": list(ALGORITHMS),
        "suite": list(ACTIONS),
        "regret": ["run", "show"],
    }
    for context, known in found.items():
        flags = [flag for option in known for flag in option.flags]
        words[context] = [*extra.get(context, ()), *dict.fromkeys(flags), "--help"]
    values = {
        f"--{option.name}": list(option.choices)
        for known in found.values()
        for option in known
        if option.choices and option.flags
    }
    return words, values | {"--explorer": list(EXPLORERS)}
