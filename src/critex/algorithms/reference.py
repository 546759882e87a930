"""Fixed policies as runs, so that a suite can compare them with methods that learn.

`critex train reference --policy wall` plays the evaluations of a run of the same seed and length, and nothing else:
the same episodes that the learned policies are scored on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from critex.envs import Envs
from critex.envs.references import follow_wall, random_steps
from critex.errors import UserError
from critex.explorers import ExplorationConfig
from critex.ranges import Count
from critex.run import Run, RunConfig

POLICIES = {"random": random_steps, "wall": follow_wall}


@dataclass(kw_only=True)
class Config(ExplorationConfig, RunConfig):
    """Options of a reference."""

    env: str = "VizdoomExplore-train-v0"
    """Id of the environment that the compared methods train on."""
    eval_env: str = ""
    """Id of the environment for evaluations (empty: the same)."""
    policy: Literal["random", "wall"] = "random"
    """random: uniformly random actions; wall: follow the wall on the right, using the depth image."""
    steps: Count = 1_000_000
    """Environment steps of the compared methods; they determine the number and the seeds of the evaluations."""
    eval_every: Count = 1_000_000
    """Environment steps between two evaluations."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.explorer != "none":
            raise UserError(
                f"a reference does not learn and takes no bonus; leave out --explorer {self.explorer}"
            )
        if self.eval_every > self.steps:
            raise UserError(
                f"a reference only plays evaluations; --eval-every must be at most --steps, {self.steps}"
            )


class Agent:
    """A policy without parameters."""

    def __init__(self, cfg: Config, *_: object) -> None:
        self.policy = POLICIES[cfg.policy]


def train(cfg: Config, run: Run) -> None:
    """Play the evaluations."""
    policy = Agent(cfg).policy
    run.attach()
    for _ in run.steps(cfg.steps // cfg.eval_every * cfg.eval_every, cfg.eval_every):
        run.evaluate(policy, partial(Envs, cfg.eval_env or cfg.env))
    run.finish({"parameters": 0, "parameters_added": 0})
