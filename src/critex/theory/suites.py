"""Suites of methods and problems. The coefficients of the methods are in `tuned.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from critex.theory import bound, peers
from critex.theory.algorithm3 import CAE
from critex.theory.bandits import BANDITS, LinTS, LinUCB, NeuralLinTS, NeuralLinUCB, bandit_regret
from critex.theory.planning import Streams, regret
from critex.theory.problems import PROBLEMS, Array

MDP_METHODS: dict[str, Callable[..., Any]] = {
    "lsvi-ucb": peers.LSVIUCB,
    "nn-ucb": peers.NNUCB,
    "opt-rlsvi": peers.OPTRLSVI,
    "lsvi-phe": peers.LSVIPHE,
    "bdqn": peers.BDQN,
    "acb": peers.ACB,
    "lmcdqn": peers.LMCDQN,
    "cae-ucb": CAE,
    "cae-thompson": partial(CAE, strategy="thompson"),
    "cae-refit": partial(CAE, refit=True),
    "cae-theorem": CAE,  # with the α and η of the theorem, see `make_agent`
}
BANDIT_METHODS: dict[str, Callable[..., Any]] = {
    "lin-ucb": LinUCB,
    "lin-ts": LinTS,
    "neural-lin-ucb": NeuralLinUCB,
    "neural-lin-ts": NeuralLinTS,
}
ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The grid from which the coefficient of every method is tuned."""
TUNING_SEEDS = (101, 102, 103)
"""The seeds of the tuning, which no suite uses."""


@dataclass(frozen=True)
class Suite:
    """Every problem with every method that fits it; all seeds of a pair are one run."""

    name: str
    title: str
    problems: tuple[str, ...]
    episodes: int = 1000
    seeds: tuple[int, ...] = tuple(range(11, 21))
    version: int = 1

    def cells(self) -> Iterator[tuple[str, str]]:
        """(problem, method) of every run."""
        for problem in self.problems:
            for method in MDP_METHODS if problem in PROBLEMS else BANDIT_METHODS:
                yield problem, method

    def scaled(self, budget: float) -> int:
        """Episodes of a run with this budget, at least 20."""
        return max(round(budget * self.episodes), 20)


SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("all", "Table 1 and the bandits", (*PROBLEMS, *BANDITS)),
        Suite("mdps", "Table 1: CAE's Algorithm 3 and its peers on finite-horizon MDPs", tuple(PROBLEMS)),
        Suite("bandits", "CAE's bandit parents on contextual bandits", tuple(BANDITS)),
        *(Suite(name, f"all methods on {name}", (name,)) for name in (*PROBLEMS, *BANDITS)),
    )
}


class Outcome(NamedTuple):
    """One method on one problem."""

    regret: Array  # per episode, [S, M]
    facts: dict[str, float]
    """The quantities of the theorem: α, D, H, |A|, λ, the potential and its bound, ‖q − q̃‖."""


@cache
def tuned() -> dict[str, dict[str, float]]:
    """α of every method on `mdps` and on `bandits`, chosen from `ALPHAS` with `TUNING_SEEDS`."""
    text = (files("critex.theory") / "tuned.toml").read_text(encoding="utf-8")
    return {kind: dict(methods) for kind, methods in tomllib.loads(text).items()}


def make_agent(
    problem_name: str, method: str, seeds: Sequence[int], episodes: int, alpha: float | None = None
) -> tuple[Any, Any]:
    """(problem, agent), with the tuned coefficient unless another is given; `cae-theorem` always has the theorem's."""
    streams, kind = Streams(seeds, "agent"), "bandits" if problem_name in BANDITS else "mdps"
    problem: Any = BANDITS[problem_name] if kind == "bandits" else PROBLEMS[problem_name](seeds)
    if method == "cae-theorem":
        size = problem.inputs().shape[-1], episodes, problem.actions  # D, M, |A|
        step_size = bound.theorem_step_size(*size, width=CAE.hidden, layers=CAE.layers)
        return problem, CAE(problem, streams, bound.theorem_alpha(*size), step_size=step_size)
    make = BANDIT_METHODS[method] if kind == "bandits" else MDP_METHODS[method]
    return problem, make(problem, streams, tuned()[kind][method] if alpha is None else alpha)


def run_cell(
    problem_name: str,
    method: str,
    seeds: Sequence[int],
    episodes: int,
    alpha: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Play all seeds of one method on one problem."""
    problem, agent = make_agent(problem_name, method, seeds, episodes, alpha)
    play = bandit_regret if problem_name in BANDITS else regret
    lost = play(problem, agent, episodes, seeds, progress)
    facts: dict[str, float] = {"alpha": agent.alpha, "horizon": getattr(problem, "horizon", 1)}
    memory = getattr(agent, "memory", agent)
    if hasattr(memory, "potential"):
        facts |= {
            "dim": memory.gram.dim,
            "ridge": memory.gram.ridge,
            "potential": float(memory.potential.max()),
            "potential_bound": float(bound.potential_bound(memory.gram.dim, episodes, memory.gram.ridge)),
        }
    if isinstance(agent, CAE):
        error = float(np.sqrt(agent.error).mean())
        facts |= {"value_error": error, "actions": problem.actions, "hidden": agent.hidden}
    return Outcome(lost, facts)
