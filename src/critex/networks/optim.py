"""Adam with little overhead, one gradient step as one call, and target updates.

The underscored operations of torch used here work on a whole list of tensors in one call. They are not public API, so
`BATCHED` says whether this torch has them; otherwise public operations compute the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from critex.networks.fast import known_gradients
from critex.networks.langevin import LangevinAdam

BATCHED = all(
    hasattr(torch, name) for name in ("_fused_adam_", "_foreach_norm", "_foreach_mul", "_foreach_lerp_")
)


class Adam(torch.optim.Adam):
    """torch's fused Adam, same numbers and same state, for parameters that are updated together.

    With a dozen small parameters, torch spends more time collecting tensors and counting the steps of each than on
    the update itself. Here they are collected once, and the parameters of a group share one step count.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, eps: float = 1e-8) -> None:
        self._groups: list[tuple[dict[str, Any], list[list[Tensor]]]] = []
        super().__init__(params, lr=lr, eps=eps, fused=True)

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters, group after group."""
        return [p for group in self.param_groups for p in group["params"]]

    def descend(self, gradients: Sequence[Tensor | None]) -> None:
        """One step with these gradients, one for each of `parameters`; None leaves the parameter unchanged."""
        parameters = self.parameters
        if len(gradients) != len(parameters):
            raise ValueError(f"{len(gradients)} gradients for {len(parameters)} parameters")
        given = [g.contiguous() for g in gradients if g is not None]
        if not BATCHED or len(given) < len(gradients) or not self._collect():
            self._public_step(parameters, gradients)
            return
        rest = iter(given)
        for group, (params, moments, squares, steps) in self._groups:
            own = list(islice(rest, len(params)))
            beta1, beta2 = group["betas"]
            steps[0].add_(1)
            torch._fused_adam_(
                params, own, moments, squares, [], steps, lr=group["lr"], beta1=beta1, beta2=beta2,
                weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
            )  # fmt: skip

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step with the gradients stored in the parameters."""
        self.descend([p.grad for p in self.parameters])

    def _public_step(self, parameters: list[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """The same step with torch.optim only, where every parameter has its own step count."""
        held = [p.grad for p in parameters]
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = g
            if self.state[p]:
                self.state[p]["step"] = self.state[p]["step"].clone()
        self._groups = []
        super().step()
        for p, g in zip(parameters, held, strict=True):
            p.grad = g

    def _collect(self) -> bool:
        """Collect the state of every group, once; False if the step counts within a group differ."""
        if self._groups:
            return True
        groups = []
        for group in self.param_groups:
            params = group["params"]
            for p in params:
                if not self.state[p]:
                    self.state[p] = {
                        "step": torch.zeros((), dtype=torch.float32, device=p.device),
                        "exp_avg": torch.zeros_like(p),
                        "exp_avg_sq": torch.zeros_like(p),
                    }
            if len({float(self.state[p]["step"]) for p in params}) > 1:
                return False
            if params:
                shared = self.state[params[0]]["step"].clone()
                for p in params:
                    self.state[p]["step"] = shared
                names = ("exp_avg", "exp_avg_sq", "step")
                groups.append((group, [params, *([self.state[p][name] for p in params] for name in names)]))
        self._groups = groups
        return True

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self._groups = []

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._groups = []


def minimise(loss: Tensor, optimizer: Adam | LangevinAdam, max_grad_norm: float | None = None) -> None:
    """One optimiser step on the loss, with gradients for the optimiser's own parameters only.

    Frozen parameters, and those that the loss does not depend on, stay unchanged. `max_grad_norm` clips the gradient
    of each parameter group separately.
    """
    parameters = optimizer.parameters
    trained = [p for p in parameters if p.requires_grad]
    gradients: Sequence[Tensor | None] | None = known_gradients(loss, trained)
    if gradients is None:
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    if len(trained) < len(parameters):
        known = iter(gradients)
        gradients = [next(known) if p.requires_grad else None for p in parameters]
    if max_grad_norm is not None:
        rest = iter(gradients)
        groups = [list(islice(rest, len(group["params"]))) for group in optimizer.param_groups]
        gradients = [g for group in groups for g in clip_gradients(group, max_grad_norm)]
    optimizer.descend(gradients)


def clip_gradients(gradients: list[Tensor | None], max_norm: float) -> list[Tensor | None]:
    """Gradient clipping: scale all gradients down together if their global norm exceeds `max_norm`."""
    given = [g for g in gradients if g is not None]
    if not given:
        return gradients
    norms = torch._foreach_norm(given) if BATCHED else [g.norm() for g in given]
    factor = (max_norm / (torch.stack(list(norms)).norm() + 1e-6)).clamp(max=1.0)
    clipped = iter(torch._foreach_mul(given, factor) if BATCHED else [g * factor for g in given])
    return [None if g is None else next(clipped) for g in gradients]


@torch.no_grad()
def polyak_(targets: list[Tensor], sources: list[Tensor], tau: float) -> None:
    """Target update θ̄ ← (1 − τ)θ̄ + τθ, in place."""
    if BATCHED:
        torch._foreach_lerp_(targets, sources, tau)
    else:
        for target, source in zip(targets, sources, strict=True):
            target.lerp_(source, tau)
