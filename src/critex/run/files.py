"""Files that are whole or absent, one process a directory, and disk errors in one clear line."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from critex.errors import UserError

LOCK = ".lock"
TEMPORARY = ".tmp"


def notice(message: str) -> None:
    """One line for the person at the keyboard, on stderr."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def disk_errors(path: Path, hint: str = "") -> Iterator[None]:
    """Turn an `OSError` into a `UserError` of one line that names the path and what to do."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # torch.save answers a failed write with a RuntimeError of its own, in whose context the failure is.
        failure = error if isinstance(error, OSError) else error.__context__
        if not isinstance(failure, OSError):
            raise
        where = failure.filename or path
        if failure.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = f"no space left to write {where} ({failure.strerror}); free some"
        elif failure.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what = f"cannot write {where} ({failure.strerror}); check its permissions"
        else:
            what = f"cannot write {where} ({failure.strerror or failure})"
        raise UserError(what + hint) from error


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte or raise: `os.write` may stop half way on a disk that fills up."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def atomic_write(path: Path, *parts: bytes | memoryview) -> None:
    """Write the file so that at any moment, and after any crash, there is the old one or the new one.

    A temporary file in the same directory is written and synced, renamed over the path, and the directory
    synced, so the new name outlives a power cut.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            for part in parts:
                write_all(fd, part)
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Lock:
    """An advisory lock on a run directory; it goes when the process goes, however it goes."""

    def __init__(self, directory: Path):
        self._fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            import fcntl
        except ImportError:  # not on this platform: two processes on one run are then the user's to avoid
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._fd, 20).decode(errors="replace").strip() or "another one"
            self.release()
            raise UserError(
                f"{directory} is in use by process {owner}; wait for it or end it first"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the directory free."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def in_use(directory: Path) -> bool:
    """Whether a living process holds the lock of this run directory."""
    try:
        import fcntl

        fd = os.open(directory / LOCK, os.O_RDWR)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
