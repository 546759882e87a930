"""The command line, `critex COMMAND`: each command is a module of this package with `main(args)`.

A new command is one module and one line in `COMMANDS`. Modules are imported when their command is called, so that
help and errors do not wait for torch.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module

from critex.console import notice, open_standard_streams
from critex.errors import UserError, unknown

PROG = "critex"

COMMANDS = {
    "train": "train an agent",
    "compare": "train with and without an explorer, and report the learning curves",
    "resume": "continue an interrupted run",
    "eval": "evaluate a trained agent, without bonus",
    "report": "compare runs on one page",
    "explain": "play a trained agent and show how new each of its steps is",
    "suite": "run all the runs behind a table",
    "table": "print our scores beside the paper's",
    "params": "count the parameters of the paper's networks (its Table 2)",
    "regret": "exact regret of the methods in the paper's Table 1",
    "demo": "see exploration happen: DQN with and without CAE on DeepSea",
    "doctor": "check what works here, and what to install for the rest",
    "completion": "set up tab completion for bash and zsh",
}
"""Command → its line in `critex --help`, in the order of a first session."""

OUT_OF_MEMORY = re.compile(
    "can't allocate memory|not enough memory|out of memory|Storage size calculation overflowed"
)
"""Patterns of torch's errors when memory runs out."""


def main(argv: list[str] | None = None) -> None:
    """Entry point. A user's mistake gives one clear line and exit code 2."""
    open_standard_streams()
    try:
        dispatch(sys.argv[1:] if argv is None else argv)
    except UserError as error:
        notice(f"{PROG}: {error}")
        sys.exit(getattr(error, "exit_code", 2))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not OUT_OF_MEMORY.search(str(error)):
            raise
        notice(f"{PROG}: not enough memory; choose a smaller --hidden, --batch-size or --num-envs")
        sys.exit(2)
    except KeyboardInterrupt:
        notice(f"{PROG}: stopped")
        sys.exit(130)
    except BrokenPipeError:  # the reader is gone, as in `critex … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # the shell's exit code for SIGPIPE


def dispatch(args: list[str]) -> None:
    """Run the command named by the arguments."""
    match args:
        case [] | ["-h" | "--help" | "help"] | ["help", "-h" | "--help" | "help"]:
            print(overview())
        case ["-V" | "--version", *_]:
            from critex import __version__

            print(f"{PROG} {__version__}")
        case ["help", *rest]:
            dispatch([*rest, "--help"])
        case [name, *rest] if name in COMMANDS:
            import_module(f"critex.cli.{name}").main(rest)
        case [name, *_]:
            raise unknown("command", name, [*COMMANDS, "help"])


def overview() -> str:
    """The text of `critex --help`."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [f"usage: {PROG} COMMAND [OPTIONS]", "", *lines, "", f"{PROG} help COMMAND lists its options."]
    )


def problems_to_stderr(problems: list[str]) -> None:
    """Print one line for each problem with the runs."""
    for problem in problems:
        notice(problem)
