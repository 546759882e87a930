"""The Gram matrix A = λI + Σφφᵀ of linear bandits: a memory of features, and the novelty of a new one."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ._checks import (
    Features,
    booleans,
    indices,
    refuse,
    summed_outer_products,
    trusted_mass,
    warn_inaccurate,
)
from ._exact import ExactForm
from ._tensor import TensorForm

P = ParamSpec("P")
R = TypeVar("R")
FEW = 8  # up to here, rows of a rollout are faster one by one than as a block


def locked(method: Callable[Concatenate[Gram, P], R]) -> Callable[Concatenate[Gram, P], R]:
    """Make a method atomic: calls from several threads run one after the other."""

    @wraps(method)
    def call(self: Gram, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **kwargs)

    return call


class Gram(nn.Module):
    r"""A memory that measures how new a feature φ is: φᵀA⁻¹φ, with A = λI + Σφφᵀ.

    Three exact forms give the same numbers, and the cheapest is chosen: rank-1 updates for single steps, a Cholesky
    factorisation for whole rollouts, and a dual (kernel) form while a memory has seen fewer than d rows. By default all of
    them run in float64 on the CPU. Float32 and other devices use the primal form in tensor operations.

    Measure, then update: a bonus never contains its own row. Rows are processed one after the other, in time order and,
    within one time step, in the order of the environments. Threads may share a Gram, since each call is atomic; only
    `load_state_dict` and `.to()` require that no other thread uses it.

    Args:
        dim: d, the length of a feature.
        ridge: λ > 0. The first bonus of a feature is ‖φ‖²/λ.
        memories: number of independent matrices; one per environment for memories that are reset each episode.
        dtype: torch.float64, or torch.float32. `.float()` and other casts of a module around it leave it as it is.
        device: where the results live.

    Example:
        >>> gram = Gram(2, ridge=1.0)
        >>> gram.observe([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        tensor([1.0000, 0.5000, 1.0000], dtype=torch.float64)
    """

    def __init__(
        self,
        dim: int,
        *,
        ridge: float = 1.0,
        memories: int = 1,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        for name, size in (("dim", dim), ("memories", memories)):
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {size!r}")
        if not (isinstance(ridge, int | float | np.floating) and ridge > 0 and math.isfinite(ridge)):
            raise ValueError(f"ridge must be a finite number above 0, got {ridge!r}")
        self.dim, self.ridge, self.memories = int(dim), float(ridge), int(memories)
        self._lock = threading.RLock()
        self._make(dtype, torch.device(device))

    def _make(self, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in (torch.float64, torch.float32):
            raise ValueError(f"dtype must be torch.float64 or torch.float32, got {dtype}")
        self.dtype, self.device = dtype, device
        self._exact = dtype == torch.float64 and device.type == "cpu"
        size = (self.dim, self.ridge, self.memories)
        self.form: Any = ExactForm(*size) if self._exact else TensorForm(*size, dtype, device)
        self._prepare_fast_path()

    def _prepare_fast_path(self) -> None:
        """Put what a single step needs into one tuple: attribute lookup on a module is slow."""
        single = self._exact and self.memories == 1
        self._fast = (self.form, (1, self.dim), self._lock) if single else None

    # Bonuses.

    @locked
    def quadratic(self, phi: Features, memory: int | Tensor | NDArray[Any] | None = None) -> Tensor:
        """φᵀA⁻¹φ: [..., d] → [...]. Nothing changes.

        With several memories, `memory` selects one: an index, or a tensor of indices that broadcasts to [...].
        It may be omitted if phi is [memories, d]: row i is then measured by memory i.
        """
        rows, _ = self._rows(phi, None)
        shape, flat = rows.shape[:-1], rows.reshape(-1, self.dim)
        if self.memories == 1 and memory is None:
            return self._out(self.form.quadratic(0, flat)).reshape(shape)
        if memory is None:
            if tuple(shape) != (self.memories,):
                raise ValueError(
                    f"memory must be given for phi of shape {list(rows.shape)}: only [{self.memories}, {self.dim}] matches "
                    f"the {self.memories} memories one to one"
                )
            memory = np.arange(self.memories)
        index = indices(memory, tuple(shape), self.memories)
        out = torch.empty(len(flat), dtype=self.dtype, device=self.device)
        for i in np.unique(index):
            chosen = np.flatnonzero(index == i)
            out[chosen] = self._out(self.form.quadratic(int(i), flat[chosen]))
        return out.reshape(shape)

    def observe(
        self, phi: Features, memory: Tensor | NDArray[Any] | None = None, *, simultaneous: bool = False
    ) -> Tensor:
        """φᵀA⁻¹φ, then A ← A + φφᵀ: [N, d] → [N].

        With one memory the rows are processed one after the other; with `memories=N`, row i belongs to memory i, or to
        memory[i] if `memory` [N] is given. `simultaneous=True` measures all rows of a memory before updating it with any.
        """
        fast = self._fast
        if fast is not None and memory is None and type(phi) is Tensor:
            one = self._observe_one(phi, fast)
            if one is not None:
                return one
        return self._observe(phi, memory, simultaneous)

    @locked
    def _observe(self, phi: Features, memory: Tensor | NDArray[Any] | None, simultaneous: bool) -> Tensor:
        rows, mass = self._rows(phi, 2)
        if memory is not None:
            return self._observe_in(indices(memory, (len(rows),), self.memories), rows, mass, simultaneous)
        form = self.form
        if self.memories > 1:
            if len(rows) != self.memories:
                wanted = f"[{self.memories}, {self.dim}]"
                raise ValueError(f"phi must have one row per memory, {wanted}, got {list(rows.shape)}")
            bonus = self._out(form.step_all(rows, mass))
        elif len(rows) == 1:
            bonus = self._out([form.step(0, rows[0])])
        elif simultaneous:
            bonus = self._out(form.quadratic(0, rows))
            form.extend(0, rows, mass)
        else:
            bonus = self._out(form.extend(0, rows, mass))
        self._check_accuracy()
        return bonus

    @staticmethod
    def _observe_one(phi: Tensor, fast: tuple[ExactForm, tuple[int, int], Any]) -> Tensor | None:
        """The most common call, one row on the CPU, with little overhead; None for any other call."""
        form, shape, lock = fast
        try:
            row = phi.numpy()
        except (RuntimeError, TypeError):  # it requires grad, is on a GPU, or has a dtype that numpy lacks
            return None
        if row.shape != shape or row.dtype.kind == "c":
            return None
        out = np.empty(1)
        with lock:
            out[0] = bonus = form.steps[0](row)
        return torch.from_numpy(out) if bonus == bonus else None  # NaN: the caller raises the error

    @staticmethod
    def _observe_few(phi: Tensor, fast: tuple[ExactForm, tuple[int, int], Any]) -> Tensor | None:
        """A rollout of a few rows, where single rows have less overhead than a block; None for any other call."""
        form, shape, lock = fast
        try:
            rows = phi.numpy()
        except (RuntimeError, TypeError):
            return None
        flat = rows.ravel()
        if rows.shape[2] != shape[1] or rows.dtype.kind != "f" or not math.isfinite(flat.dot(flat)):
            return None
        with lock:  # a row may turn the memory primal, and the rows after it then need another function
            bonus = np.array([form.steps[0](row) for row in flat.reshape(-1, *shape)])
        return torch.from_numpy(bonus.reshape(rows.shape[:2]))

    def _observe_in(self, index: NDArray[Any], rows: Any, mass: Any, simultaneous: bool) -> Tensor:
        out = self.quadratic(rows, index) if simultaneous else None
        after = torch.empty(len(rows), dtype=self.dtype, device=self.device)
        for i in np.unique(index):
            chosen = np.flatnonzero(index == i)
            if len(chosen) == 1:
                after[chosen] = self.form.step(int(i), rows[chosen[0]])
            else:
                after[chosen] = self._out(self.form.extend(int(i), rows[chosen], mass[chosen]))
        self._check_accuracy()
        return after if out is None else out

    def observe_rollout(self, phi: Features, starts: Tensor | NDArray[Any] | None = None) -> Tensor:
        """The same as T calls of `reset` and `observe`, but faster: [T, N, d] → [T, N].

        With one memory, all rows are processed in time order, envs in order. With one memory per env, column i belongs to
        memory i, and `starts` [T, N] marks the first step of each episode, before which the memory is reset.
        """
        fast = self._fast
        if fast is not None and starts is None and type(phi) is Tensor and phi.ndim == 3:
            few = self._observe_few(phi, fast) if 0 < phi.shape[0] * phi.shape[1] <= FEW else None
            if few is not None:
                return few
        return self._observe_rollout(phi, starts)

    @locked
    def _observe_rollout(self, phi: Features, starts: Tensor | NDArray[Any] | None) -> Tensor:
        rows, mass = self._rows(phi, 3)
        steps, envs = rows.shape[:2]
        if self.memories == 1 < envs and starts is not None:
            raise ValueError(
                "starts needs one memory per env (memories=N): a shared memory is never reset by one env"
            )
        if self.memories == 1 and starts is None:
            bonus = self.form.extend(0, rows.reshape(-1, self.dim), mass.reshape(-1))
            self._check_accuracy()
            return self._out(bonus).reshape(steps, envs)
        if envs != self.memories:
            raise ValueError(
                f"phi must have one env per memory, [T, {self.memories}, {self.dim}], got {list(rows.shape)}"
            )
        nowhere = np.zeros((steps, envs), dtype=np.bool_)
        begins = nowhere if starts is None else booleans(starts, (steps, envs), "starts")
        out = torch.empty(steps, envs, dtype=self.dtype, device=self.device)
        for i in range(self.memories):
            cuts = [0, *(t for t in np.flatnonzero(begins[:, i]).tolist() if t > 0), steps]
            for begin, end in pairwise(cuts):
                if begin < end and begins[begin, i]:
                    self.form.reset(i)
                block = rows[begin:end, i]
                out[begin:end, i] = self._out(self.form.extend(i, block, mass[begin:end, i]))
        self._check_accuracy()
        return out

    @locked
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Δθ ~ N(0, A⁻¹), one draw per memory: [memories, d]."""
        return torch.stack([self._out(self.form.sample(i, generator)) for i in range(self.memories)])

    # Changes.

    @locked
    def reset(self, mask: Tensor | NDArray[Any] | Sequence[bool] | None = None) -> None:
        """A ← λI where mask [memories] is true; everywhere without a mask."""
        everywhere = np.ones(self.memories, dtype=bool)
        chosen = everywhere if mask is None else booleans(mask, everywhere.shape, "mask")
        for i in np.flatnonzero(chosen):
            self.form.reset(int(i))

    @locked
    def increment(self) -> Tensor:
        """Σφφᵀ of the rows observed since the last call (or reset, or rebuild), [memories, d, d]."""
        return torch.stack([self._out(self.form.increment(i)) for i in range(self.memories)])

    @locked
    def merge(self, increment: Features) -> None:
        """A ← A + increment [memories, d, d], the rows of another worker. They do not count towards our own `increment`."""
        added = summed_outer_products(increment, (self.memories, self.dim, self.dim))
        before = {name: value.clone() for name, value in self.state_dict().items()}
        for i in range(self.memories):
            if not self.form.add(i, self._own(added[i]), counted=False):
                self.load_state_dict(before)
                raise ValueError(
                    f"increment[{i}] must be a sum of outer products: A + increment is not positive definite"
                )

    @locked
    def rebuild(self, phi: Features, memory: int | None = None) -> None:
        """A ← λI + Σφφᵀ over exactly the rows phi [n, d], for features that have drifted since they were observed."""
        rows, mass = self._rows(phi, 2)
        if memory is None and self.memories > 1:
            raise ValueError(f"memory must say which of the {self.memories} memories to rebuild, got None")
        if memory is not None and not 0 <= memory < self.memories:
            raise ValueError(f"memory must be an index from 0 to {self.memories - 1}, got {memory}")
        self.form.rebuild(memory or 0, rows, mass)
        self._check_accuracy()

    # Diagnostics.

    @locked
    def matrix(self) -> Tensor:
        """A, [memories, d, d], symmetric to the bit."""
        eye = torch.eye(self.dim, dtype=self.dtype, device=self.device)
        return torch.stack([self._out(self.form.total(i)) + self.ridge * eye for i in range(self.memories)])

    @locked
    def inverse(self) -> Tensor:
        """A⁻¹, [memories, d, d], symmetric to the bit."""
        return self._out(self.form.inverse_matrices())

    @locked
    def log_det(self) -> Tensor:
        """log det A, [memories]. It grows by log(1 + φᵀA⁻¹φ) with each row."""
        values = [self.form.log_det(i) for i in range(self.memories)]
        return torch.tensor(values, dtype=self.dtype, device=self.device)

    @locked
    def effective_dimension(self) -> Tensor:
        """tr(A⁻¹(A − λI)), [memories]: how many of the d directions have been seen, between 0 and d."""
        values = [self.form.effective_dimension(i) for i in range(self.memories)]
        return torch.tensor(values, dtype=self.dtype, device=self.device)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, ridge={self.ridge}, memories={self.memories}, dtype={self.dtype}, device={self.device}"

    # Input and output.

    def _rows(self, phi: Features, ndim: int | None) -> tuple[Any, Any]:
        """phi in this Gram's dtype and on its device, and ‖φ‖² of each row; bad input raises before anything changes."""
        if isinstance(phi, Tensor):
            rows: Any = phi.detach() if phi.requires_grad else phi
            if rows.is_complex() or rows.layout is not torch.strided or rows.is_quantized or rows.is_meta:
                raise ValueError(
                    f"phi must be a dense tensor of real numbers, got {rows.dtype}, {rows.layout}"
                )
        else:
            rows = np.asarray(phi)
            if rows.dtype.kind not in "fiub":
                raise ValueError(f"phi must hold real numbers, got dtype {rows.dtype}")
        if rows.ndim == 0 or rows.shape[-1] != self.dim or ndim not in (None, rows.ndim):
            wanted = {None: "...", 2: "N", 3: "T, N"}[ndim]
            raise ValueError(f"phi must have shape [{wanted}, {self.dim}], got {list(rows.shape)}")
        if self._exact:
            if isinstance(rows, Tensor):
                rows = rows.to("cpu", torch.float64).numpy()
            rows = np.ascontiguousarray(rows, dtype=np.float64)
            mass = np.einsum("...d,...d->...", rows, rows)
        else:
            rows = torch.as_tensor(rows).to(self.device, self.dtype)
            mass = rows.square().sum(-1)
        if not math.isfinite(mass.sum() / self.ridge):
            refuse(rows)
        return rows, mass

    def _out(self, values: Any) -> Tensor:
        if self._exact:
            return torch.from_numpy(np.asarray(values, dtype=np.float64))
        return torch.stack(values) if isinstance(values, list) else torch.as_tensor(values)

    def _check_accuracy(self) -> None:
        if self.form.heaviest() > trusted_mass(self.ridge, self.dtype):
            warn_inaccurate(self.ridge, self.dtype)

    # Moving.

    def _apply(self, fn: Any, recurse: bool = True) -> Gram:
        """`.to()` and similar move a memory to another device; only the constructor sets its dtype.

        Otherwise `.float()` of a module that contains an explorer would round off what the explorer remembers.
        """
        probe = fn(torch.empty(1, dtype=self.dtype, device=self.device))
        if probe.device == self.device:
            if probe.dtype == self.dtype:
                super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            return self
        old = [(self._out(self.form.total(i)), self._out(self.form.marked(i))) for i in range(self.memories)]
        self._make(self.dtype, probe.device)
        for i, pair in enumerate(old):
            total, marked = (self._own(matrix) for matrix in pair)
            self.form.add(i, total, counted=True)
            self.form.marked(i)[...] = marked
        return self

    def _own(self, matrix: Tensor) -> Any:
        moved = matrix.to(self.device, self.dtype)
        return moved.numpy() if self._exact else moved

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_fast")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock = threading.RLock()
        self._prepare_fast_path()

    # Saving.

    @locked
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The memories and the ridge."""
        return super().state_dict(*args, **kwargs)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "ridge"] = torch.tensor(self.ridge, dtype=torch.float64)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Refuse a state with another ridge or with values that are not finite; `form` loads the rest itself."""
        errors = args[4]
        ridge = state_dict.pop(prefix + "ridge", None)  # absent where only parameters are loaded
        if ridge is not None and float(ridge) != self.ridge:
            errors.append(f"{prefix}ridge is {float(ridge)} in the state and {self.ridge} here")
        for name, value in state_dict.items():
            if name.startswith(prefix + "form.") and (value.is_complex() or not bool(value.isfinite().all())):
                errors.append(f"{name} must hold finite real numbers")
        super()._load_from_state_dict(state_dict, prefix, *args)
