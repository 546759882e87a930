"""BDQN (Azizzadenesheli et al., 2018): Bayesian linear regression for each action, and Thompson sampling."""

from __future__ import annotations

import numpy as np

from critex.theory.peers.lsvi import LSVI
from critex.theory.planning import Streams
from critex.theory.problems import Array, Problem


class BDQN(LSVI):
    """Acts greedily on φ(s)ᵀw_a with w_a ~ N(w̄_a, α²A_a⁻¹), drawn once per episode; targets use the means w̄_a.

    α is σ_ε, the noise of the targets, and λ = σ_ε²/σ². The regressions of the actions are one regression on
    e_a ⊗ φ(s): its Gram matrix is block diagonal. φ(s) are the features of all actions in s.
    """

    def __init__(self, problem: Problem, streams: Streams, alpha: float, ridge: float = 1.0) -> None:
        super().__init__(problem, streams, alpha, ridge, per_action(problem))

    def q(self) -> Array:
        normal = self.streams.normal(self.problem.horizon, self.memory.dim, 1)
        noise = self.alpha * self.memory.draws(normal)[..., 0]
        perturbed = [self.memory.linear(noise[:, h]) for h in range(self.problem.horizon)]
        return super().q() + np.stack(perturbed, 1)


def per_action(problem: Problem) -> Array:
    """e_a ⊗ φ(s), [I, n, A, d]. Of a tabular problem these are its own one-hot features."""
    if problem.dim == problem.states * problem.actions:
        return problem.phi
    instances, n, actions, d = problem.phi.shape
    state = problem.phi.reshape(instances, n, actions * d) / np.sqrt(actions)
    blocks = np.einsum("isd,ab->isabd", state, np.eye(actions))
    return np.asarray(blocks.reshape(instances, n, actions, -1))
