"""Ctrl-C: the first one finishes the iteration and writes a checkpoint, the second one stops at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any

from critex.errors import UserError

MESSAGE = b"\nstopping after this step; press again to stop at once, without a checkpoint\n"


class Interrupted(UserError):
    """The run was asked to stop and has written its checkpoint. `exit_code` follows the shell's convention."""

    def __init__(self, message: str, signum: int = signal.SIGINT):
        super().__init__(message)
        self.exit_code = 128 + signum


class StopSignals:
    """Records SIGINT and SIGTERM between `catch` and `release`; `caught` is the signal, or 0.

    The first one prints the message on stderr.
    """

    def __init__(self, message: bytes = MESSAGE) -> None:
        self.caught, self._message = 0, message
        self._handlers: dict[int, Any] = {}

    def catch(self) -> None:
        """Install the handlers, unless the signals are ignored or this is not the main thread."""
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._handlers[signum] = signal.signal(signum, self._handle)

    def release(self) -> None:
        """Restore the previous handlers."""
        while self._handlers:
            signum, handler = self._handlers.popitem()
            signal.signal(signum, handler or signal.SIG_DFL)

    def _handle(self, signum: int, _: FrameType | None) -> None:
        if self.caught:
            raise KeyboardInterrupt
        self.caught = signum
        with contextlib.suppress(OSError):  # stderr may be gone
            os.write(2, self._message)
