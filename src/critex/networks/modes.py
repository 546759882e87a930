"""Modules in evaluation mode, for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn

WITH_MODES = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.dropout._DropoutNd,
    nn.RReLU,
    nn.MultiheadAttention,
)
"""Layers that compute something else in training mode, and batch norms that change themselves."""
WITHOUT_MODES = ("torch.nn.modules.", "critex.")
"""Where all other modules compute the same in both modes; those of users may ask for `self.training`."""


def with_modes(module: nn.Module) -> list[nn.Module]:
    """The parts of a module that may compute something else in training mode; hooks may ask for it, too."""
    return [
        part
        for part in module.modules()
        if isinstance(part, WITH_MODES)
        or part._forward_pre_hooks
        or not type(part).__module__.startswith(WITHOUT_MODES)
    ]


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
