"""The numbers of the paper's theorem: its exploration coefficient, its step size and the terms of its bound."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from critex.theory.problems import Array


def theorem_alpha(dim: int, episodes: int, actions: int, ridge: float = 1.0, sigma: float = 0.05) -> float:
    """α = √(2(D log(1 + M log|A|/λ) − log σ)) + √λ."""
    inside = dim * math.log(1 + episodes * math.log(actions) / ridge) - math.log(sigma)
    return math.sqrt(2 * inside) + math.sqrt(ridge)


def theorem_step_size(
    dim: int, episodes: int, actions: int, width: int, layers: int = 2, sigma: float = 0.05
) -> float:
    """The largest η that the theorem allows with C₁ = 1: 1 / (ι D² M^{11/2} L⁶ log(M|A|/σ))."""
    log = math.log(episodes * actions / sigma)
    return float(1.0 / (width * dim**2 * float(episodes) ** 5.5 * layers**6 * log))


def potential_bound(dim: int, episodes: ArrayLike, ridge: float = 1.0) -> Array:
    """The elliptical potential: Σ_m min(1, φᵀA⁻¹φ) ≤ 2D log(1 + M/(λD)) for ‖φ‖ ≤ 1."""
    return np.asarray(2 * dim * np.log1p(np.asarray(episodes, float) / (ridge * dim)))


def exploration_term(alpha: float, dim: int, horizon: int, episodes: ArrayLike, ridge: float = 1.0) -> Array:
    """First term of the bound with C₂ = 1: αH√(MD log(1 + M/(λD)))."""
    m = np.asarray(episodes, float)
    return np.asarray(alpha * horizon * np.sqrt(m * dim * np.log1p(m / (ridge * dim))))


def noise_term(horizon: int, episodes: ArrayLike, sigma: float = 0.05) -> Array:
    """Second term with C₄ = 1: H√(MH log(1/σ))."""
    return np.asarray(horizon * np.sqrt(np.asarray(episodes, float) * horizon * math.log(1 / sigma)))


def network_term(
    error: ArrayLike,
    dim: int,
    horizon: int,
    episodes: ArrayLike,
    actions: int,
    width: int,
    layers: int = 2,
    sigma: float = 0.05,
) -> Array:
    """Third term with C₃ = 1: H L³ D^{5/2} M √(log ι log(1/σ) log(M|A|/σ)) ‖q − q̃‖ / ι^{1/6}.

    `error` is ‖q − q̃‖ in the norm of H⁻¹. The tangent kernel H of all visited pairs is singular as soon as one pair
    was visited twice; our plots use the identity instead.
    """
    m = np.asarray(episodes, float)
    logs = math.log(width) * math.log(1 / sigma) * np.log(m * actions / sigma)
    scale = horizon * layers**3 * dim**2.5 * m / width ** (1 / 6)
    return np.asarray(scale * np.sqrt(logs) * np.asarray(error, float))
