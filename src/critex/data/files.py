"""Files written atomically, with a checksum, and never through a symbolic link."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from critex.errors import UserError, reason

TEMPORARY = ".tmp"
FORMAT = 2
"""Version of the header. In version 1 the checksum covered the payload only."""

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)


class Damaged(Exception):
    """A file that cannot be used; the message says why."""


# Opening --------------------------------------------------------------------------------------------------------


def open_file(path: Path, flags: int) -> int:
    """`os.open` of a regular file to be written; a symbolic link, a pipe or a device is refused.

    A run directory may come from someone else: a link in it must not make us write elsewhere.
    """
    try:
        fd = os.open(path, flags | _NOFOLLOW | _NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path} is a symbolic link; a run does not write through links") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UserError(f"{path} is not a regular file; a run does not write to it")
    return fd


def own_directory(path: Path) -> None:
    """Create a directory if needed; a symbolic link in its place is refused."""
    refuse_link(path)
    path.mkdir(exist_ok=True)


def refuse_link(path: Path) -> None:
    """Refuse a symbolic link where a run would write."""
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link; a run does not write through links")


def read_file(path: Path) -> bytes:
    """The content of a regular file. A pipe or a device, which might never end, is an `OSError`."""
    fd = os.open(path, os.O_RDONLY | _NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read()


# Writing --------------------------------------------------------------------------------------------------------


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte or raise: `os.write` may write only part of the data when the disk fills up."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def atomic_write(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file atomically: at any moment, and after any crash, either the old or the new file is there.

    A temporary file in the same directory is written and synced, then renamed over the path; the directory
    is synced last, so that the new name survives a power cut.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    temporary.unlink(missing_ok=True)  # left by a crash, or a link planted there
    try:
        fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
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


# States with a checksum -----------------------------------------------------------------------------------------
#
# A state file is one line of text, `critex-<kind> <format> <sha256> <bytes>`, followed by the output of `torch.save`
# for nested dictionaries, lists, numbers, strings and tensors. The checksum also covers the rest of the line.


def save_state(path: Path, kind: str, state: Mapping[str, Any]) -> str:
    """Write a state file atomically; return its checksum."""
    buffer = io.BytesIO()
    torch.save(plain_state(state), buffer)
    payload = buffer.getbuffer()
    digest = _digest(kind, FORMAT, payload)
    atomic_write(path, f"critex-{kind} {FORMAT} {digest} {len(payload)}\n".encode(), payload)
    return digest


def load_state(path: Path, kind: str) -> tuple[dict[str, Any], str]:
    """Read a state file: (state, checksum). Raises `Damaged` if the file has changed since it was written.

    Nothing in the file is executed: once the checksum is verified, it is read with `weights_only=True`.
    """
    try:
        header, _, payload = read_file(path).partition(b"\n")
        magic, version, digest, length = header.decode("ascii").split(" ")
        if magic != f"critex-{kind}" or not 1 <= int(version) < 1000:
            raise ValueError
    except OSError as error:
        raise Damaged(f"{path} cannot be read ({error.strerror})") from error
    except ValueError:
        raise Damaged(f"{path} is damaged: its first line is not the header of a {kind}") from None
    if str(len(payload)) != length:
        raise Damaged(f"{path} is damaged: {len(payload)} bytes where {length} were written")
    if _digest(kind, int(version), payload) != digest:
        raise Damaged(f"{path} is damaged: its checksum does not match")
    if int(version) > FORMAT:
        raise UserError(f"{path} has format {version}, this critex reads up to {FORMAT}; use a newer critex")
    return _unpickled(path, payload), digest


def _unpickled(path: Path, payload: bytes) -> dict[str, Any]:
    """The dictionary that `torch.save` wrote, loading only tensors and plain values; `Damaged` if there is none."""
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # a crafted payload can fail in any way
        raise Damaged(f"{path} cannot be loaded ({reason(error)[:200]})") from error
    if not isinstance(state, dict):
        raise Damaged(f"{path} cannot be loaded (it holds a {type(state).__name__}, not a dictionary)")
    return state


def _digest(kind: str, version: int, payload: bytes | memoryview) -> str:
    sha = hashlib.sha256(f"critex-{kind} {version} {len(payload)}\n".encode())
    sha.update(payload)
    return sha.hexdigest()


def plain_state(value: Any, where: str = "state") -> Any:
    """The state, if all of it can be loaded without executing code; otherwise a `TypeError` names the offending entry."""
    if value is None or isinstance(value, bool | int | float | str | bytes | torch.dtype):
        if type(value).__module__ not in ("builtins", "torch"):  # numpy.float64 is a float that does not load
            raise TypeError(
                f"{where} is a {type(value).__name__}; a checkpoint holds plain values and tensors"
            )
        return value
    if isinstance(value, torch.Tensor):
        value = value.detach()
        whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
        return value if whole else value.clone()  # a view would be saved with all of its storage
    if isinstance(value, Mapping):
        return {key: plain_state(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_state(item, f"{where}[{i}]") for i, item in enumerate(value))
    raise TypeError(f"{where} is a {type(value).__name__}; a checkpoint holds plain values and tensors")
