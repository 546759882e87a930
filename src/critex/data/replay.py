"""A replay buffer: a ring of preallocated tensors, sampled with one gather per field, saved as immutable chunks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from critex.data.files import Damaged, load_state, save_state
from critex.data.transition import Batch, Transition
from critex.data.tree import tree_leaves, tree_map
from critex.errors import UserError

KIND = "replay"
"""In the header of a chunk file."""


class Replay:
    """The last `capacity` transitions, sampled uniformly with replacement.

    Row g, the g-th ever added, lives at g mod capacity; the N rows of a vector step are added in env order.
    Observations keep their dtype (uint8 images stay uint8), reward and bonus are two columns. Of
    `transition.info` nothing is stored.

    On disk the buffer is a series of chunk files, each written once: chunk k holds the rows
    [k·chunk, (k+1)·chunk). `state_dict` holds the rest: counters, generator, the rows of the unfinished chunk,
    and the checksums of the chunks. To save, call `save_chunks(directory)`, then store `state_dict()`; to restore,
    `load_state_dict(state)`, then `load_chunks(directory)`.
    """

    def __init__(self, capacity: int, seed: int = 0, *, chunk: int | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self.chunk = min(capacity, 10_000) if chunk is None else chunk
        if not 1 <= self.chunk <= capacity:
            raise ValueError(f"chunk must lie between 1 and the capacity {capacity}, not {self.chunk}")
        self.total = 0  # number of rows ever added
        self.generator = torch.Generator().manual_seed(seed)
        self._storage: dict[str, Any] = {}  # Transition.asdict() with every leaf [capacity, …]
        self._arrays: list[Any] = []  # numpy views of its leaves: writing through them takes half the time
        self._saved: dict[int, str] = {}  # checksum of each chunk on disk
        self._complete = True  # False between load_state_dict and load_chunks

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def add(self, transition: Transition) -> None:
        """Append the N rows of one vector step, overwriting the oldest."""
        n, start = len(transition), self.total % self.capacity
        if n > self.capacity:
            raise UserError(
                f"a replay buffer of {self.capacity} transitions cannot hold one step of {n} environments; "
                f"use a buffer_size of at least {n}"
            )
        tree = transition.asdict() | {"info": {}}
        if not self._storage:
            self._allocate(tree)
        end, fits = start + n, self.capacity - start
        for array, leaf in zip(self._arrays, tree_leaves(tree), strict=True):
            rows = leaf.numpy(force=True)
            if n <= fits:
                array[start:end] = rows
            else:
                array[start:], array[: n - fits] = rows[:fits], rows[fits:]
        self.total += n

    def sample(self, batch_size: int) -> Batch:
        """`batch_size` rows drawn uniformly with replacement by the replay's own generator: [B, …]."""
        return self._gather(self._draw(batch_size))

    def sample_windows(self, batch_size: int, length: int, num_envs: int) -> Batch:
        """B windows of `length` consecutive transitions of one env, [length, B, …], or [B, …] if `length` is 1.

        The first transition of a window is drawn as by `sample`. The rows must have been added `num_envs` at a time.
        The newest transition of each env counts as truncated. A window may continue past the end of an episode:
        the transitions after the end belong to another one, and after the newest it is repeated.
        """
        if length == 1:
            return self.sample(batch_size)
        first = self._draw(batch_size)
        ahead = (self.total - 1 - first) % self.capacity // num_envs  # steps of that env after the first
        index = (first + num_envs * torch.arange(length).unsqueeze(-1).minimum(ahead)) % self.capacity
        windows = self._gather(index.flatten()).map(lambda x: x.unflatten(0, (length, batch_size)))
        windows.truncated |= (self.total - 1 - index) % self.capacity < num_envs
        return windows

    def last(self, n: int) -> Batch:
        """The newest min(n, len) rows, oldest first: [n, …]."""
        return self._rows(self.total - min(n, len(self)), self.total)

    def all(self) -> Batch:
        """Every row held, oldest first."""
        return self.last(self.capacity)

    def _draw(self, batch_size: int) -> torch.Tensor:
        if self.total == 0:
            raise ValueError("the replay is empty: add a transition before sampling")
        return torch.randint(len(self), (batch_size,), generator=self.generator)

    # --- storage ---

    def _allocate(self, like: dict[str, Any]) -> None:
        try:
            storage: Any = tree_map(lambda x: torch.zeros((self.capacity, *x.shape[1:]), dtype=x.dtype), like)
        except (RuntimeError, MemoryError) as error:
            row = sum(leaf.shape[1:].numel() * leaf.element_size() for leaf in tree_leaves(like))
            raise UserError(
                f"a replay buffer of {self.capacity} transitions needs {self.capacity * row / 1e9:,.1f} GB of memory, "
                "which is not available; choose a smaller buffer_size"
            ) from error
        self._storage, self._arrays = storage, [leaf.numpy() for leaf in tree_leaves(storage)]

    def _gather(self, index: torch.Tensor) -> Batch:
        if not self._complete:
            raise ValueError("only half of the replay is restored: call load_chunks after load_state_dict")
        rows: Any = tree_map(lambda x: x.index_select(0, index), self._storage)
        return Transition(**rows)

    def _rows(self, first: int, stop: int) -> Batch:
        """A copy of the rows first … stop − 1, counted from the first ever added."""
        return self._gather(torch.arange(first, stop) % self.capacity)

    def _put(self, first: int, rows: dict[str, Any]) -> None:
        index = torch.arange(first, first + len(rows["reward"])) % self.capacity
        tree_map(lambda x, new: x.index_copy_(0, index, new), self._storage, rows)

    # --- checkpoints ---

    @property
    def _oldest(self) -> int:
        return self.total - len(self)

    def _finished(self) -> range:
        """The finished chunks that still have rows in the buffer."""
        return range(self._oldest // self.chunk, self.total // self.chunk)

    def state_dict(self) -> dict[str, Any]:
        """Everything except the finished chunks."""
        state: dict[str, Any] = {"capacity": self.capacity, "chunk": self.chunk, "total": self.total}
        state["generator"] = self.generator.get_state()
        state["chunks"] = dict(self._saved)
        if self.total:
            first = max(self.total // self.chunk * self.chunk, self._oldest)
            state["tail"] = self._rows(first, self.total).asdict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore counters, generator and tail; `load_chunks` restores the rest."""
        for name in ("capacity", "chunk"):
            if state[name] != getattr(self, name):
                raise UserError(f"the saved replay has {name} {state[name]}, this one {getattr(self, name)}")
        self.total = state["total"]
        self.generator.set_state(state["generator"])
        self._storage = {}
        self._saved = dict(state["chunks"])
        if self.total:
            self._allocate(state["tail"])
            self._put(self.total - len(state["tail"]["reward"]), state["tail"])
        self._complete = not self._finished()

    def save_chunks(self, directory: str | Path) -> None:
        """Write the finished chunks that are not on disk yet, each atomically.

        A file written by a killed run after its last checkpoint is not trusted, and overwritten.
        """
        for k in self._finished():
            if k not in self._saved:
                path = _path(directory, k)
                path.parent.mkdir(parents=True, exist_ok=True)
                first = max(k * self.chunk, self._oldest)
                rows = self._rows(first, (k + 1) * self.chunk).asdict()
                self._saved[k] = save_state(path, KIND, {"first": first, "rows": rows})
        self._saved = {k: self._saved[k] for k in self._finished()}

    def load_chunks(self, directory: str | Path) -> None:
        """Read the chunks that the loaded state refers to; `Damaged` if a file is not the one that was written."""
        for k in self._finished():
            path = _path(directory, k)
            state, checksum = load_state(path, KIND)
            if checksum != self._saved.get(k):
                raise Damaged(f"{path} belongs to another run or to another checkpoint")
            first, rows = state["first"], state["rows"]
            drop = max(self._oldest - first, 0)
            end = first + len(rows["reward"])
            if first > max(k * self.chunk, self._oldest) or end != (k + 1) * self.chunk:
                raise Damaged(f"{path} does not hold the rows that this checkpoint needs")
            self._put(first + drop, tree_map(lambda x, drop=drop: x[drop:], rows))  # type: ignore[arg-type]
        self._complete = True

    def prune_chunks(self, directory: str | Path, keep_states: Sequence[dict[str, Any]]) -> None:
        """Delete the chunks that none of the kept checkpoints (their `state_dict`s) needs."""
        oldest = min((max(state["total"] - self.capacity, 0) for state in keep_states), default=0)
        for path in Path(directory).glob("replay-*.pt"):
            number = path.stem.removeprefix("replay-")
            if number.isdecimal() and (int(number) + 1) * self.chunk <= oldest:
                path.unlink()


def _path(directory: str | Path, k: int) -> Path:
    return Path(directory) / f"replay-{k:06d}.pt"
