"""Errors meant for the person at the keyboard."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A mistake that the user can correct: the message says what is wrong and what would work.

    The command line prints it and exits with code 2. It is always one printable line, even if a file name or a file
    contains control characters.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def printable(text: str) -> str:
    """The text on one line, with control characters (terminal escapes) written out as \\x1b."""
    return "".join(c if c.isprintable() else " " if c == "\n" else ascii(c)[1:-1] for c in text)


def reason(error: BaseException) -> str:
    """The message of any error on one line, or its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an unknown name, with near matches if there are any."""
    known = sorted(known)
    near = nearest(name, known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return UserError(f"unknown {kind} {name!r}; {hint}")


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names like this one in any case, those that begin with it first."""
    lower, names = name.lower(), {each.lower(): each for each in known}
    longer = sorted((each for each in names if lower and each.startswith(lower)), reverse=True)
    found = dict.fromkeys([*sorted(longer, key=len), *get_close_matches(lower, names, n=3)])
    return [names[each] for each in found][:3]


def require_widths(**widths: tuple[int, ...]) -> None:
    """Refuse networks without a hidden layer, by the name of the option."""
    for name, layers in widths.items():
        if not layers:
            raise UserError(f"{name} is empty; give the width of at least one hidden layer, as in 64 64")
