"""Checkpoints: atomic, checksummed, the last two kept, loaded without executing anything.

A file is one line of text, `critex-checkpoint <format> <sha256> <bytes>`, and then what `torch.save` made of
nested dictionaries, lists, numbers, strings and tensors. It is read with `weights_only=True`, and only after
its checksum was verified.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from critex.errors import UserError
from critex.run.files import TEMPORARY, atomic_write, notice

CHECKPOINTS = "checkpoints"
FORMAT = 1
KEPT = 2
_MAGIC = "critex-checkpoint"


class Part(Protocol):
    """Anything whose state goes into the checkpoint."""

    def state_dict(self) -> Mapping[str, Any]:
        """The whole state, in plain values and tensors."""

    def load_state_dict(self, state: Any, /) -> object:
        """Continue from there."""


@runtime_checkable
class ChunkedPart(Part, Protocol):
    """A part too large to be written anew each time: it keeps immutable chunks beside the checkpoints."""

    def save_chunks(self, directory: Path, /) -> None:
        """Write the chunks that are not on disk yet; called before `state_dict`."""

    def load_chunks(self, directory: Path, /) -> None:
        """Read the chunks the state refers to; called after `load_state_dict`."""

    def prune_chunks(self, directory: Path, states: list[dict[str, Any]], /) -> None:
        """Delete what none of the kept states needs; they come without their tensors."""


class Damaged(Exception):
    """This checkpoint cannot be used; the message says why."""


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write one checkpoint file, whole or not at all."""
    buffer = io.BytesIO()
    torch.save(plain_state(state), buffer)
    payload = buffer.getbuffer()
    header = f"{_MAGIC} {FORMAT} {hashlib.sha256(payload).hexdigest()} {len(payload)}\n"
    atomic_write(path, header.encode(), payload)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in one checkpoint file; `Damaged` where the file is not what was written."""
    try:
        header, _, payload = path.read_bytes().partition(b"\n")
        magic, version, digest, length = header.decode("ascii").split(" ")
        if magic != _MAGIC or int(version) < 1:
            raise ValueError
    except OSError as error:
        raise Damaged(f"{path} cannot be read ({error.strerror})") from error
    except ValueError:
        raise Damaged(f"{path} is damaged: its first line is no checkpoint header") from None
    if int(version) > FORMAT:
        raise UserError(f"{path} has format {version}, this critex reads up to {FORMAT}; use a newer critex")
    if str(len(payload)) != length:
        raise Damaged(f"{path} is damaged: {len(payload)} bytes where {length} were written")
    if hashlib.sha256(payload).hexdigest() != digest:
        raise Damaged(f"{path} is damaged: its checksum does not match")
    state: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    return state


def plain_state(value: Any, where: str = "state") -> Any:
    """The state, if it is all of types that load without executing code; a `TypeError` names what is not."""
    if value is None or isinstance(value, bool | int | float | str | bytes | torch.dtype):
        if type(value).__module__ not in (
            "builtins",
            "torch",
        ):  # numpy.float64 is a float, and yet not loadable
            raise TypeError(
                f"{where} is a {type(value).__name__}; a checkpoint holds plain values and tensors"
            )
        return value
    if isinstance(value, torch.Tensor):
        value = value.detach()
        whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
        return value if whole else value.clone()  # a view would drag all of its storage along
    if isinstance(value, Mapping):
        return {key: plain_state(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_state(item, f"{where}[{i}]") for i, item in enumerate(value))
    raise TypeError(f"{where} is a {type(value).__name__}; a checkpoint holds plain values and tensors")


def without_tensors(value: Any) -> Any:
    """The state with its tensors left out, light enough to be remembered."""
    if isinstance(value, Mapping):
        return {k: without_tensors(v) for k, v in value.items() if not isinstance(v, torch.Tensor)}
    return value


class Checkpoints:
    """The directory of a run's checkpoints."""

    def __init__(self, run: Path):
        self.directory = run / CHECKPOINTS

    def files(self) -> list[Path]:
        """The checkpoint files, newest first."""
        return sorted(self.directory.glob("step-*.ckpt"), reverse=True)

    def valid(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The checkpoints that can be used, newest first; each damaged one met on the way is reported."""
        for path in self.files():
            try:
                state = read_checkpoint(path)
            except Damaged as damage:
                notice(f"{damage}; trying the one before it")
            else:
                yield path, state

    def newest(self) -> dict[str, Any]:
        """The newest valid state, with `["parts"]` by name; a `UserError` where there is none."""
        for _, state in self.valid():
            return state
        raise self.none_valid()

    def none_valid(self) -> UserError:
        """The error for a run that no checkpoint can continue."""
        return UserError(f"no valid checkpoint in {self.directory}; start the run anew in another directory")

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the checkpoint of this step, then delete all but the last two."""
        path = self.directory / f"step-{step:012d}.ckpt"
        self.directory.mkdir(exist_ok=True)
        write_checkpoint(path, state)
        for old in self.files()[KEPT:]:
            old.unlink()
        return path

    def clean(self, resumed: Path) -> None:
        """Before going on from `resumed`: set newer files aside as damaged, delete temporary ones."""
        for path in self.files():
            if path.name > resumed.name:
                path.rename(path.with_suffix(".damaged"))
        for path in self.directory.rglob("*" + TEMPORARY):
            path.unlink()
