"""One lifelong memory for several processes of one machine."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from critex.bonus import Gram
from critex.errors import UserError


class SharedGram:
    """A lifelong memory shared by several processes through a file: the file holds Σφφᵀ, each process its own `Gram`.

    The file belongs to one run: a new memory that meets a file takes over what is in it.
    """

    def __init__(self, path: str | Path, gram: Gram) -> None:
        self.path, self.gram = Path(path), gram
        self._shape = (gram.memories, gram.dim, gram.dim)
        self._known: NDArray[np.float64] | None = None  # the part of the file that this memory contains

    def exchange(self) -> None:
        """File ← file + our increment; A ← A + the increments that others have added since."""
        own = self.gram.increment().numpy()
        if self._known is None:  # zero, or what a restored memory has exchanged before
            eye = np.eye(self.gram.dim)
            self._known = self.gram.matrix().numpy() - self.gram.ridge * eye - own
        self.path.touch()
        with self.path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released with the file
            data = file.read()
            if data and len(data) != own.nbytes:
                raise UserError(
                    f"{self.path} is not the memory of this explorer; delete it, or give another shared="
                )
            # A memory restored from a checkpoint fills a file that has been deleted since.
            total = np.frombuffer(data).reshape(self._shape) if data else self._known
            others = total - self._known
            file.seek(0)
            file.write(np.ascontiguousarray(total + own).tobytes())
        if others.any():
            self.gram.merge(torch.from_numpy(0.5 * (others + others.transpose(0, 2, 1))))
        self._known = total + own
