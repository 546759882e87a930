"""Modules in evaluation mode, for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Without dropout, and with the running statistics of batch norms; afterwards every module is as it was."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
