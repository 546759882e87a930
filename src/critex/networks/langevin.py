"""Adam LMCDQN's optimiser (Ishfaq et al., 2024): gradient steps that sample instead of settling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class LangevinAdam(torch.optim.Optimizer):
    """θ ← θ − η(g + a·m/(√v + ε)) + noise·√(2η)·N(0, I).

    m and v are Adam's moments including the gradient g, without bias correction. With a = 0 and the gradient of a loss L the
    stationary distribution is ∝ exp(−L/noise²). A greedy agent whose value network is trained with it explores
    without any bonus. Only `params` get noise: parameters added later, such as those of an explorer, are not sampled.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-4,
        noise: float = 1e-7,
        a: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        seed: int = 0,
    ) -> None:
        defaults = {"lr": lr, "noise": 0.0, "a": a, "betas": betas, "eps": eps}
        super().__init__([{"params": list(params), "noise": noise}], defaults)
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters, group after group."""
        return [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def descend(self, gradients: Sequence[Tensor | None]) -> None:
        """One step along these gradients, one for each of `parameters`."""
        rest = iter(gradients)
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                g, state = next(rest), self.state[p]
                if g is None:  # the loss does not depend on it
                    continue
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(p), torch.zeros_like(p)
                state["mean"].lerp_(g, 1 - beta1)
                state["square"].lerp_(g * g, 1 - beta2)
                drift = g + group["a"] * state["mean"] / (state["square"].sqrt() + group["eps"])
                p.add_(drift, alpha=-lr)
                if group["noise"]:
                    noise = torch.randn(p.shape, generator=self.generator).to(p)
                    p.add_(noise, alpha=group["noise"] * (2 * lr) ** 0.5)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step with the gradients stored in the parameters."""
        self.descend([p.grad for p in self.parameters])

    def state_dict(self) -> dict[str, object]:
        """The moments, and the state of the noise generator."""
        return {**super().state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Restore the moments and the noise generator."""
        rest = dict(state_dict)
        noise = rest.pop("generator")
        assert isinstance(noise, Tensor)
        self.generator.set_state(noise)
        super().load_state_dict(rest)
