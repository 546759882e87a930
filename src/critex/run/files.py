"""One process per run directory, and disk errors as one clear line."""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from critex.data.files import atomic_write as atomic_write  # for reports, which may not import critex.data
from critex.data.files import open_file
from critex.errors import UserError

LOCK = ".lock"


@contextlib.contextmanager
def disk_errors(path: Path, hint: str = "") -> Iterator[None]:
    """Turn an `OSError` into a `UserError` of one line that names the path and what to do."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = f"no space left to write {where} ({error.strerror}); free some"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what = f"cannot write {where} ({error.strerror}); check its permissions"
        elif error.errno == errno.ENAMETOOLONG:
            what = f"cannot write {str(where)[:60]}… ({error.strerror}); choose a shorter path"
        else:
            what = f"cannot write {where} ({error.strerror or error})"
        raise UserError(what + hint) from error


class Lock:
    """An advisory lock on a run directory; the operating system frees it when the process ends, however it ends."""

    def __init__(self, directory: Path):
        self._path = directory / LOCK
        self._fd = open_file(self._path, os.O_RDWR | os.O_CREAT)
        try:
            import fcntl
        except ImportError:  # no file locks on this platform: users must not start two processes on one run
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._fd, 20).decode(errors="replace").strip() or "another one"
            self.release()
            raise UserError(
                f"{directory} is in use by process {owner}; wait for it or end it first"
            ) from None
        # A forked worker has the lock, too, and would keep it after the end of this process.
        mine = weakref.WeakMethod(self.release)
        os.register_at_fork(after_in_child=lambda: (release := mine()) and release())
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def in_place(self) -> bool:
        """Whether the directory is still where it was: its lock file is the one that this process holds."""
        try:
            there = self._path.lstat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._fd))

    def release(self) -> None:
        """Unlock the directory."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def in_use(directory: Path) -> bool:
    """Whether a living process holds the lock of this run directory."""
    try:
        import fcntl

        fd = open_file(directory / LOCK, os.O_RDWR)
    except (ImportError, OSError, UserError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
