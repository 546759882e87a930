"""Seeds: every random stream of a run gets its own, derived from the run's seed and the stream's name."""

from __future__ import annotations

import hashlib


def derive_seed(*path: int | str) -> int:
    """A 32-bit seed from a path of names and numbers, such as `derive_seed(cfg.seed, "replay")`.

    Streams with different paths are unrelated. 32 bits, because that is what NumPy's legacy generator accepts.
    """
    digest = hashlib.sha256("/".join(map(str, path)).encode()).digest()
    return int.from_bytes(digest[:4], "big")
