"""Checkpoints: atomic and checksummed, the last two kept; loading executes no code (see `critex.data.files`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from critex.console import notice
from critex.data.files import TEMPORARY, Damaged, load_state, own_directory, save_state
from critex.errors import UserError, reason
from critex.run.record import CONFIG, read_run_id

CHECKPOINTS = "checkpoints"
KIND = "checkpoint"
KEPT = 2


class Part(Protocol):
    """Anything whose state belongs in the checkpoint."""

    def state_dict(self) -> Mapping[str, Any]:
        """The whole state, in plain values and tensors."""

    def load_state_dict(self, state: Any, /) -> object:
        """Restore that state."""


@runtime_checkable
class ChunkedPart(Part, Protocol):
    """A part too large to be rewritten for each checkpoint: it keeps immutable chunks beside the checkpoints."""

    def save_chunks(self, directory: Path, /) -> None:
        """Write the chunks that are not on disk yet; called before `state_dict`."""

    def load_chunks(self, directory: Path, /) -> None:
        """Read the chunks that the state refers to; called after `load_state_dict`."""

    def prune_chunks(self, directory: Path, states: list[dict[str, Any]], /) -> None:
        """Delete the chunks that none of the kept states needs; the states come without their tensors."""


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write one checkpoint file atomically."""
    save_state(path, KIND, state)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in one checkpoint file; `Damaged` if the file has changed since it was written."""
    return load_state(path, KIND)[0]


def load_part(name: str, part: Part, states: Any, directory: Path | None = None) -> None:
    """Restore one part from the parts of a checkpoint, with its chunks if `directory` is given.

    Any failure raises `Damaged`: a maliciously crafted checkpoint can fail in any way.
    """
    try:
        part.load_state_dict(states[name])
        if directory is not None and isinstance(part, ChunkedPart):
            part.load_chunks(directory / name)
    except Damaged as damage:
        raise Damaged(f"{name}: {damage}") from damage
    except Exception as error:
        raise Damaged(f"it does not fit the config of its run: {name}: {reason(error)[:300]}") from error


def require_id(path: Path, state: dict[str, Any], run_id: str) -> None:
    """Refuse a checkpoint of another run."""
    run = state.get("run")
    if run_id and not (isinstance(run, dict) and run.get("id") == run_id):
        raise Damaged(f"{path} belongs to another run")


def without_tensors(value: Any) -> Any:
    """The state with its tensors left out, small enough to be kept in memory."""
    if isinstance(value, Mapping):
        return {k: without_tensors(v) for k, v in value.items() if not isinstance(v, torch.Tensor)}
    return value


class Checkpoints:
    """The checkpoints of a run."""

    def __init__(self, run: Path):
        self._run, self.directory = run, run / CHECKPOINTS

    def files(self) -> list[Path]:
        """The checkpoint files, newest first."""
        return sorted(self.directory.glob("step-*.ckpt"), reverse=True)

    def valid(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The readable checkpoints of this run, newest first; each unreadable one before them is reported."""
        run_id = read_run_id(self._run) if (self._run / CONFIG).exists() else ""
        files = self.files()
        for path in files:
            try:
                state = read_checkpoint(path)
                require_id(path, state, run_id)
            except Damaged as damage:
                notice(f"{damage}" + "; trying the previous one" * (path != files[-1]))
            else:
                yield path, state

    def newest(self) -> dict[str, Any]:
        """The newest valid state, with `["parts"]` by name; a `UserError` if there is none."""
        for _, state in self.valid():
            return state
        raise self.none_valid()

    def none_valid(self, reason: object = "") -> UserError:
        """The error for a run without a usable checkpoint; `reason` explains why the last one is unusable."""
        why = f" ({reason})" if reason else ""
        return UserError(
            f"no valid checkpoint in {self.directory}{why}; start a new run in another directory"
        )

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the checkpoint of this step, then delete all but the last two."""
        path = self.directory / f"step-{step:012d}.ckpt"
        own_directory(self.directory)
        write_checkpoint(path, state)
        for old in self.files()[KEPT:]:
            old.unlink()
        return path

    def clean(self, resumed: Path) -> None:
        """Before continuing from `resumed`: rename newer checkpoints to .damaged, delete temporary files."""
        for path in self.files():
            if path.name > resumed.name:
                path.rename(path.with_suffix(".damaged"))
        for path in self.directory.rglob("*" + TEMPORARY):
            path.unlink()
