"""Seeds, devices, threads, and the state of every global random generator as plain values."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from critex.errors import UserError


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch (CPU and GPU)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def choose_device(name: str) -> torch.device:
    """The torch device for auto, cpu or cuda; on a GPU, torch's deterministic algorithms are requested."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError(f"device cuda: torch {torch.__version__} sees no CUDA device here; use --device cpu")
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"device {name!r} is not known; it must be auto, cpu or cuda")
    if name == "cpu" or not available:
        return torch.device("cpu")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch.device("cuda")


def limit_threads(number: int) -> None:
    """Set the threads of torch and of the BLAS of NumPy and SciPy; our matrix products are too small to split."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

    torch.set_num_threads(number)
    threadpool_limits(number, user_api="blas")


def rng_state() -> dict[str, Any]:
    """The state of every global generator, as numbers, tuples and tensors."""
    name, key, position, has_gauss, gauss = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (
            str(name),
            torch.from_numpy(np.array(key, np.int64)),
            int(position),
            int(has_gauss),
            float(gauss),
        ),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore every global generator from the result of `rng_state`."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, key, *rest = state["numpy"]
    np.random.set_state((name, key.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


@contextlib.contextmanager
def preserved_rng() -> Iterator[None]:
    """Restore the global generators at the end of the block."""
    state = rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
