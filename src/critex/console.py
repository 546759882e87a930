"""Output that never stops a run: if its reader goes away (`critex train … | head -1`), only the output ends."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from critex.errors import printable


def say(message: str) -> None:
    """Print one line on stdout."""
    _print(message, sys.stdout)


def notice(message: str) -> None:
    """Print one line on stderr, for the person at the keyboard."""
    _print(message, sys.stderr)


def _print(message: str, stream: TextIO | None) -> None:
    with lost_output(stream):
        print(printable(message), file=stream, flush=True)


@contextlib.contextmanager
def lost_output(*streams: TextIO | None) -> Iterator[None]:
    """Continue if output fails; the streams (stdout, if none is given) are then redirected to the null device.

    rich exits the process if the reader is gone, so its `SystemExit` counts as lost output as well.
    """
    try:
        yield
    except (OSError, ValueError, SystemExit):  # ValueError: the stream is closed
        for stream in streams or (sys.stdout,):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                # What is still in the stream's buffer would fail again when the process ends.
                fd = stream.fileno()  # type: ignore[union-attr]
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, fd)
                os.close(null)


def open_standard_streams() -> None:
    """Open the null device in place of a closed stdin, stdout or stderr.

    Otherwise the next file to be opened gets their number, and every message would be written into it.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is `fd`
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
