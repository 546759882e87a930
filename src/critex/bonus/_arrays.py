"""Buffers that BLAS works on in place: every buffer of the module has a numpy view that stays valid."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn


class Arrays(nn.Module):
    """A module whose buffers are CPU tensors, each with a numpy view of the same memory under the name with a `_`.

    The views follow when a buffer is replaced, loaded, moved, copied or pickled. Buffers may change their size; only
    what a subclass calls in use, in `_trimmed`, is saved.
    """

    def _put(self, **arrays: NDArray[Any]) -> None:
        """Make these arrays the buffers of their names."""
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array))
        self._bind()

    def _bind(self) -> None:
        for name, buffer in self._buffers.items():
            assert buffer is not None
            setattr(self, "_" + name, buffer.numpy())

    def _trimmed(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """The part of a buffer that is in use."""
        return array

    def _fits(self, name: str, shape: torch.Size) -> bool:
        """Whether a saved array of this shape can be the buffer `name`."""
        raise NotImplementedError

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._bind()
        return self

    def __getstate__(self) -> dict[str, Any]:
        bound = {"steps", *("_" + name for name in self._buffers)}
        return {name: value for name, value in self.__dict__.items() if name not in bound}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._bind()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name in self._buffers:
            used = self._trimmed(name, getattr(self, "_" + name))
            destination[prefix + name] = torch.from_numpy(used.copy())

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        missing, errors = args[2], args[4]
        found = {name: state_dict.get(prefix + name) for name in self._buffers}
        absent = [prefix + name for name, value in found.items() if value is None]
        missing += absent
        for name, value in found.items():
            if value is not None and not self._fits(name, value.shape):
                errors.append(f"{prefix}{name} of shape {list(value.shape)} does not fit {self}")
        if not absent and not errors:
            self._put(**{name: value.detach().cpu().numpy().copy() for name, value in found.items()})
