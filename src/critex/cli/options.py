"""Dataclasses as command-line options: their flags, their help page, and parsing with one-line errors.

A field without a default is a positional argument. The docstring under a field is its help; where a subclass only
changes the default, it needs none of its own.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import shutil
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from critex.errors import UserError
from critex.ranges import ranges_of

T = TypeVar("T")
Sections = Mapping[str, Sequence["Option"]]

INDENT, COLUMN, WIDEST = 2, 28, 100


@dataclass(frozen=True)
class Option:
    """One flag or positional argument."""

    name: str
    """Dotted, with hyphens: `bonus.phi-norm`; a positional argument keeps its own name."""
    metavar: str
    help: str
    default: str | None
    """As shown in the help; None for a positional argument."""
    choices: tuple[str, ...] = ()
    bounds: str = ""
    """The range of a number."""
    optional: bool = False
    """Whether `none` is a value, which tyro only knows as `None`."""

    @property
    def flags(self) -> list[str]:
        """`--steps`; also `--no-progress` for a switch; none for a positional argument."""
        if self.default is None:
            return []
        parent, _, leaf = self.name.rpartition(".")
        negative = f"--{parent}{'.' if parent else ''}no-{leaf}"
        return [f"--{self.name}"] if self.metavar else [f"--{self.name}", negative]

    @property
    def usage(self) -> str:
        """The left column of the help page."""
        if self.default == "on":
            return self.flags[1].replace("no-", "[no-]", 1)
        return f"{''.join(self.flags[:1])} {self.metavar}".strip()


def options_of(cls: type, default: Any = None, prefix: str = "") -> list[Option]:
    """The options of a dataclass, nested ones included; `default` is an instance with the defaults to show."""
    hints = get_type_hints(cls, include_extras=True)
    found: list[Option] = []
    for field in dataclasses.fields(cls):
        missing = default is None and field.default is dataclasses.MISSING
        factory = field.default_factory
        if default is not None:
            value = getattr(default, field.name)
        else:
            value = field.default if factory is dataclasses.MISSING else factory()
        name = prefix + field.name.replace("_", "-")
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found += options_of(type(value), value, f"{name}.")
            continue
        metavar, choices = _describe(hints[field.name])
        bounds = "; ".join(filter(None, map(str, ranges_of(hints[field.name]))))
        help_ = field_help(cls).get(field.name, "")
        if missing and factory is dataclasses.MISSING:
            metavar = re.sub("PATH|TEXT", field.name.upper(), metavar)
            found.append(Option(field.name, metavar, help_, None, choices, bounds))
        else:
            optional = type(None) in get_args(hints[field.name]) and "PATH" not in metavar
            found.append(Option(name, metavar, help_, _shown(value), choices, bounds, optional))
    return found


def _describe(hint: Any) -> tuple[str, tuple[str, ...]]:
    """(metavar, choices) of a type; the metavar of a switch is empty."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _describe(args[0])
    if origin in (Union, types.UnionType):
        members = [_describe(arg) for arg in args if arg is not type(None)]
        if members == [("", ())]:  # a switch with a third position takes a value
            return _describe(Literal["True", "False"])
        if len(members) == 1:
            return members[0]
        choices = tuple(choice for _, own in members for choice in own)
        return "|".join(metavar.strip("{}").replace(",", "|") for metavar, _ in members), choices
    if origin is Literal:
        choices = tuple(map(str, args))
        return f"{{{','.join(choices)}}}", choices
    if origin is tuple:
        metavar, choices = _describe(args[0])
        return f"{metavar} …", choices
    return {bool: "", int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}.get(hint, "VALUE"), ()


def _shown(value: Any) -> str:
    match value:
        case None | "" | ():
            return ""
        case bool():
            return "on" if value else "off"
        case tuple():
            return " ".join(map(str, value))
    return str(value)


@cache
def field_help(cls: type) -> dict[str, str]:
    """Field → the docstring under it, each on one line; a subclass overrides its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__dataclass_fields__" not in vars(base):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError):  # a class that was made at run time
            continue
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for statement, after in pairwise(statements):
            match statement, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


# Help -----------------------------------------------------------------------------------------------------


def help_page(prog: str, description: str, sections: Sections, width: int | None = None) -> str:
    """The help of a command, wrapped to the terminal."""
    width = min(width or shutil.get_terminal_size().columns, WIDEST)
    every = [option for options in sections.values() for option in options]
    positional = " ".join(option.metavar for option in every if not option.flags)
    flags = "[OPTIONS]" if any(option.flags for option in every) else ""
    parts = [" ".join(filter(None, ("usage:", prog, positional, flags)))]
    parts += [wrapped(description, width)]
    for title, options in sections.items():
        if options:
            parts.append("\n".join([f"{title}:", *(_entry(option, width) for option in options)]))
    return "\n\n".join(filter(None, parts))


def wrapped(text: str, width: int | None = None) -> str:
    """The paragraph, wrapped to the terminal."""
    return textwrap.fill(" ".join(text.split()), min(width or shutil.get_terminal_size().columns, WIDEST))


def _entry(option: Option, width: int) -> str:
    default = f"default: {option.default}" if option.default else ""
    notes = "; ".join(filter(None, (default, option.bounds)))
    text = f"{option.help} ({notes})" if notes else option.help
    margin = " " * COLUMN
    lines = textwrap.wrap(text, width - COLUMN, break_long_words=False, break_on_hyphens=False) or [""]
    usage = " " * INDENT + option.usage
    if len(usage) > COLUMN - 2:
        return "\n".join([usage, *(margin + line for line in lines)])
    return "\n".join([f"{usage:<{COLUMN}}{lines[0]}".rstrip(), *(margin + line for line in lines[1:])])


# Parsing --------------------------------------------------------------------------------------------------


def parse(
    cls: type[T],
    prog: str,
    args: list[str],
    default: Any = None,
    sections: Sections | None = None,
    elsewhere: Callable[[], Mapping[str, str]] = dict,
) -> T:
    """Parse the arguments into the dataclass `cls`; a mistake is a `UserError` of one line.

    `elsewhere` returns flags that are valid with other arguments, and how to suggest them.
    """
    known = options_of(cls, default)
    if "-h" in args or "--help" in args:
        split = {
            "arguments": [o for o in known if not o.flags],
            "options": [o for o in known if o.flags],
        }
        print(help_page(prog, cls.__doc__ or "", sections or split))
        raise SystemExit(0)
    _refuse_unknown(args, known, prog, elsewhere)
    import tyro

    box = io.StringIO()
    try:
        with redirect_stderr(box):
            options = {} if default is None else {"default": default}
            parsed: T = tyro.cli(
                cls,
                prog=prog,
                args=_for_tyro(args, known),
                config=(tyro.conf.PositionalRequiredArgs,),
                **options,
            )
            return parsed
    except SystemExit:
        message = _message(box.getvalue())
        if message.startswith("Missing from"):
            message = f"missing {' '.join(option.metavar for option in known if not option.flags)}"
        raise UserError(f"{message} (see {prog} --help)") from None


def _for_tyro(args: Sequence[str], known: Sequence[Option]) -> list[str]:
    """The arguments as tyro reads them: `--reward-clip None` for `none`, `--steps 1000000` for `1e6`."""
    optional = {flag for option in known if option.optional for flag in option.flags}
    whole = {flag for option in known if option.metavar == "INT" for flag in option.flags}
    found: list[str] = []
    for before, arg in pairwise(["", *args]):
        flag, equals, value = arg.partition("=") if arg.startswith("--") else (before, "", arg)
        name = flag.replace("_", "-")
        if name in optional and value == "none":
            value = "None"
        elif name in whole and re.fullmatch(r"\d+(\.\d+)?e\+?\d+", value.lower()):
            number = float(value)
            value = str(int(number)) if number.is_integer() else value
        found.append(f"{flag}={value}" if equals else value or arg)
    return found


def _refuse_unknown(
    args: Iterable[str], known: Sequence[Option], prog: str, elsewhere: Callable[[], Mapping[str, str]]
) -> None:
    flags = {flag: flag for option in known for flag in option.flags}
    for arg in args:
        flag = arg.partition("=")[0]
        plain = flag.replace("_", "-")
        if (flag.startswith("--") and plain not in flags) or f"-{plain}" in flags:
            near = _closest(plain, {**elsewhere(), **flags})
            hint = f"; did you mean {near}?" if near else ""
            raise UserError(f"unknown option {flag}{hint} (see {prog} --help)")


def _closest(flag: str, suggestions: Mapping[str, str]) -> str | None:
    """The suggestion for the nearest flag by its last part: `--ridge` and `--bonus.rigde` match `--bonus.ridge`."""

    def leaf(name: str) -> str:
        return name.lstrip("-").rpartition(".")[2]

    near = get_close_matches(leaf(flag), dict.fromkeys(map(leaf, suggestions)), n=1)
    same = [name for name in suggestions if leaf(name) in near]
    return suggestions[get_close_matches(flag, same, n=1, cutoff=0)[0]] if same else None


def _message(box: str) -> str:
    """The message in tyro's error box: sections between rules; without a frame, the title is the first of them."""
    lines = [line.strip("│ ") for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    text = "\n".join("" if line.startswith(("╭", "╰")) else line for line in lines)
    sections = [" ".join(s.split()) for s in re.split(r"^[─-]{3,}$", text, flags=re.MULTILINE) if s.strip()]
    message = re.sub(r"^Error parsing \w+: ", "", sections[0 if "╭" in box else 1]).rstrip(".")
    number = (
        r"Error parsing (\S+): (?:invalid literal for (int)|could not convert string to float).*: '(.*)'.*"
    )
    message = re.sub(
        number, lambda m: f"{m[1]} takes a {'whole number' if m[2] else 'number'}, not {m[3]}", message
    )
    message = re.sub("^Unrecognized options: ", "unexpected: ", message)
    numbers = r"Error parsing (\S+): Could not find valid parse for arguments: \[(.*)\]"
    message = re.sub(numbers, r"\1 takes numbers separated by spaces, not \2", message)
    message = re.sub(r"Missing value for argument '(\S+)'\..*", r"\1 needs a value", message)
    choice = r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\)"
    message = re.sub(choice, lambda m: f"{m[2]} takes {_alternatives(m[3])}, not {m[1]}", message)
    # An option of several types: tyro adds the error of each.
    several = r"Error parsing (\S+): no type matching (\S+) could be instantiated from \[(.*?)\]\..*"

    def types_of(match: re.Match[str]) -> str:
        found = re.sub("[{}]", "", match[2]).replace(",", "|").replace("None", "none")
        return f"{match[1]} takes {found}, not {match[3]}"

    return re.sub(several, types_of, message)


def _alternatives(names: str) -> str:
    """`'b', 'a', 'None'` → a, b or none; tyro's order changes from call to call."""
    *some, last = sorted(re.findall("'(.*?)'", names.replace("'None'", "'none'")))
    return f"{', '.join(some)} or {last}" if some else last
