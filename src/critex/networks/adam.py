"""Adam with less to do around the arithmetic, and one gradient step as one call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from critex.networks.langevin import LangevinAdam


class Adam(torch.optim.Adam):
    """torch's fused Adam, same numbers and same state, for parameters that always move together.

    With a dozen small parameters torch spends more time on finding its tensors and counting the steps of each than
    on moving them. Here they are found once, and those of a group share one count.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, eps: float = 1e-8) -> None:
        self._found: list[tuple[dict[str, Any], list[list[Tensor]]]] = []
        super().__init__(params, lr=lr, eps=eps, fused=True)

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters, group after group."""
        return [p for group in self.param_groups for p in group["params"]]

    def descend(self, gradients: Sequence[Tensor]) -> None:
        """One step along these gradients, one for each of `parameters`."""
        if not self._found:
            self._find()
        wanted = sum(len(tensors[0]) for _, tensors in self._found)
        if len(gradients) != wanted:
            raise ValueError(f"{len(gradients)} gradients for {wanted} parameters")
        start = 0
        for group, (params, moments, squares, steps) in self._found:
            own = [g.contiguous() for g in gradients[start : start + len(params)]]
            beta1, beta2 = group["betas"]
            steps[0].add_(1)
            torch._fused_adam_(
                params, own, moments, squares, [], steps, lr=group["lr"], beta1=beta1, beta2=beta2,
                weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
            )  # fmt: skip
            start += len(params)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step along the gradients that the parameters hold."""
        self.descend([p.grad for p in self.parameters if p.grad is not None])

    def _find(self) -> None:
        for group in self.param_groups:
            params = group["params"]
            for p in params:
                if not self.state[p]:
                    zero = torch.zeros((), dtype=torch.float32, device=p.device)
                    self.state[p] = {
                        "step": zero,
                        "exp_avg": torch.zeros_like(p),
                        "exp_avg_sq": torch.zeros_like(p),
                    }
            if params:
                shared = self.state[params[0]]["step"].clone()
                for p in params:
                    self.state[p]["step"] = shared
                names = ("exp_avg", "exp_avg_sq", "step")
                self._found.append(
                    (group, [params, *([self.state[p][name] for p in params] for name in names)])
                )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self._found = []

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._found = []


def minimise(loss: Tensor, optimizer: Adam | LangevinAdam, longest: float | None = None) -> None:
    """One step of the optimiser down the gradient of the loss, computed for its own parameters and no others.

    `longest` is where the length of the gradient is cut, of each group of parameters on its own.
    """
    gradients = torch.autograd.grad(loss, optimizer.parameters)
    if longest is not None:
        rest = iter(gradients)
        groups = [list(islice(rest, len(group["params"]))) for group in optimizer.param_groups]
        gradients = tuple(g for group in groups if group for g in cut(group, longest))
    optimizer.descend(gradients)


def cut(gradients: list[Tensor], longest: float) -> tuple[Tensor, ...]:
    """The gradients, shortened where they are longer than that, taken together as one vector."""
    length = torch.stack(torch._foreach_norm(gradients)).norm()
    return torch._foreach_mul(gradients, (longest / (length + 1e-6)).clamp(max=1.0))


def plus(
    loss: Tensor, gradients: list[Tensor], extra: Tensor, optimizer: Adam
) -> tuple[Tensor, list[Tensor]]:
    """The sum of a loss whose gradients are known and of one that autograd knows, and the gradients of the sum.

    The gradients given belong to the first parameters of the optimiser, those returned to all of them.
    """
    if not extra.requires_grad:
        return loss + extra, gradients
    more: Any = torch.autograd.grad(extra, optimizer.parameters, allow_unused=True)
    both = [g if m is None else g + m for g, m in zip(gradients, more, strict=False)]
    return loss + extra.detach(), [*both, *more[len(gradients) :]]
