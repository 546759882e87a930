"""Adam with less to do around the arithmetic, and one gradient step as one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Adam(torch.optim.Adam):
    """torch's fused Adam, same numbers and same state; it looks its tensors up once instead of at every step.

    With a dozen small parameters torch spends more time on finding them than on moving them.
    """

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        self._found: list[tuple[dict[str, Any], list[list[Tensor]]]] | None = None
        super().__init__(params, lr=lr, fused=True)

    def step(self, closure: Any = None) -> Any:
        """One step along the gradients; every parameter must have one."""
        if closure is not None or self._found is None:
            loss = super().step(closure)  # makes the state, where there is none yet
            self._found = [
                (group, self._tensors(group["params"])) for group in self.param_groups if group["params"]
            ]
            return loss
        for group, (params, moments, squares, steps) in self._found:
            gradients: Any = [p.grad for p in params]
            beta1, beta2 = group["betas"]
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                params, gradients, moments, squares, [], steps, lr=group["lr"], beta1=beta1, beta2=beta2,
                weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
            )  # fmt: skip
        return None

    def _tensors(self, params: list[Tensor]) -> list[list[Tensor]]:
        state = [[self.state[p][name] for p in params] for name in ("exp_avg", "exp_avg_sq", "step")]
        return [params, *state]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self._found = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._found = None


def minimise(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """One step of the optimiser down the gradient of the loss, computed for its own parameters and no others."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()
