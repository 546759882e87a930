"""Buffers that BLAS updates in place: each has a numpy view of the same memory that stays valid."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn


class Arrays(nn.Module):
    """A module whose buffers are CPU tensors; `_name` is the numpy view of the buffer `name`.

    The views stay valid when a buffer is replaced, loaded, moved, copied or pickled. Buffers may change their size;
    only the part in use, which a subclass returns from `_trimmed`, is saved.
    """

    def _put(self, **arrays: NDArray[Any]) -> None:
        """Register these arrays as buffers under these names."""
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

    def _problem(self, arrays: dict[str, NDArray[Any]]) -> str:
        """The inconsistency in saved buffers; empty if there is none."""
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
        absent = [prefix + name for name in self._buffers if prefix + name not in state_dict]
        missing += absent
        if absent or errors:
            return
        # BLAS would update a converted copy of another dtype, and the update would be lost: convert here.
        arrays = {
            name: state_dict[prefix + name].detach().cpu().to(buffer.dtype).numpy().copy()  # type: ignore[union-attr]
            for name, buffer in self._buffers.items()
        }
        if problem := self._problem(arrays):
            errors.append(f"{prefix}{problem}")
        else:
            self._put(**arrays)
