"""Evaluation episodes: separate environments and seeds, no bonus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch

from critex.data import Episode, derive_seed
from critex.data.tree import Tree
from critex.run.seeding import preserved_rng, seed_everything

MAX_ENVS = 10
MAX_EPISODE = 100_000

Policy = Callable[[Tree], torch.Tensor]
"""obs → action, both [N, …], greedy; must not change the agent."""


@runtime_checkable
class Recurrent(Protocol):
    """A policy with a recurrent state."""

    def restart(self, ended: torch.Tensor) -> None:
        """Reset the recurrent state of the environments whose episode ended, [N]."""


class EvalEnvs(Protocol):
    """The interface that an evaluation needs from a vector of environments."""

    @property
    def obs(self) -> Tree:
        """The observation to act on."""

    def step(self, action: torch.Tensor, /) -> tuple[Any, Tree]:
        """(transition, the next observation to act on)."""

    def pop_episodes(self) -> list[Episode]:
        """The episodes that finished since the last call."""

    def close(self) -> object:
        """Release the environments' resources."""


class MakeEnvs(Protocol):
    """A factory of environments, such as `functools.partial(Envs, "CartPole-v1")`."""

    def __call__(self, num_envs: int, *, seed: int) -> EvalEnvs:
        """`num_envs` fresh environments."""


def evaluate(
    policy: Policy, make_envs: MakeEnvs, episodes: int, seed: int, max_steps: int = MAX_EPISODE
) -> dict[str, Any]:
    """Play `episodes` episodes; return their mean return, every return and every length.

    Each of the N envs plays a fixed number of episodes: counting the first to finish would favour short ones.
    The global generators are seeded for the evaluation and restored afterwards, so training is not affected.
    `max_steps` is for environments without a time limit: the evaluation ends after that many steps per episode,
    and `unfinished` counts the episodes that did not finish.
    """
    n = min(episodes, MAX_ENVS)
    quota = [episodes // n + (i < episodes % n) for i in range(n)]
    played: list[list[Episode]] = [[] for _ in range(n)]
    with preserved_rng(), torch.no_grad():
        seed_everything(derive_seed(seed, "policy"))
        envs = make_envs(n, seed=derive_seed(seed, "envs"))
        try:
            obs = envs.obs
            for _ in range(max_steps * max(quota)):
                transition, obs = envs.step(policy(obs))
                if isinstance(policy, Recurrent):
                    policy.restart(transition.ended)
                for episode in envs.pop_episodes():
                    played[episode.env].append(episode)
                if all(len(p) >= q for p, q in zip(played, quota, strict=True)):
                    break
        finally:
            envs.close()
    counted = [episode for p, q in zip(played, quota, strict=True) for episode in p[:q]]
    returns = [float(episode.return_) for episode in counted]
    result: dict[str, Any] = {
        "return": sum(returns) / len(returns) if returns else float("nan"),
        "returns": returns,
        "lengths": [int(episode.length) for episode in counted],
    }
    for name in dict.fromkeys(name for episode in counted for name in episode.measures):  # such as coverage
        values = [episode.measures[name] for episode in counted if name in episode.measures]
        result |= {name: sum(values) / len(values), f"{name}s": values}
    if len(returns) < episodes:
        result["unfinished"] = episodes - len(returns)
    return result
