"""The protocol that every exploration method follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from time import perf_counter
from typing import Any, ClassVar

import gymnasium as gym
import torch
from torch import Tensor, nn

from critex.bonus import NotFinite
from critex.console import notice
from critex.data import Replay, Transition, derive_seed
from critex.data.tree import Tree
from critex.embedding import Embedding
from critex.errors import UserError
from critex.explorers._alpha import Alpha
from critex.explorers.diagnostics import EarlyShare
from critex.networks.nethack import NetworkName

PATIENCE = 5
"""Times in a row that `metrics` must find the same reason for a warning; an untrained network may give one at first."""


def print_warning(kind: str, warning: str) -> None:
    """Print the warning of an explorer on stderr."""
    notice(warning)


@dataclass(frozen=True)
class Setting:
    """All that an explorer knows about its agent. It sees neither the algorithm nor the environment."""

    embedding: Embedding
    """The critic's φ, and the shape of the actions."""
    observation_space: gym.Space[Any] | None = None
    num_envs: int = 1
    seed: int = 0
    nethack: NetworkName = "compact"
    """The size of an explorer's own encoder of NetHack's screen."""

    def own_seed(self) -> int:
        """The seed of the explorer's random stream, different from the agent's."""
        return derive_seed(self.seed, "explorer")


@dataclass(frozen=True)
class NoOptions:
    """An explorer without options."""


class Explorer(nn.Module):
    """Computes an exploration bonus β for each transition.

    A method is a subclass with a dataclass `Config` and a constructor `(config, setting)`. It defines `_bonus`, or `raw`
    if it derives from `ScaledExplorer`, and `loss` if it learns.

    `bonus` and `bonus_rollout` return the scaled β without gradient and update memory and scaler. β never contains
    the coefficient α: the algorithm applies it, so that buffers store reward and bonus separately. `measure` updates
    nothing. The algorithm adds `learned()` to the critic's optimiser.
    """

    Config: ClassVar[type] = NoOptions
    episodic: bool = False
    """Its memory is reset in each episode, so a bonus cannot be measured again later."""
    compares_actions: bool = False
    """It can compute the bonus of every action in a state, which `bonus_in=value` needs."""
    in_targets: bool = True
    """With `bonus_in=value`, its bonus enters the bootstrapped targets as well as the choice of actions."""

    @property
    def measures(self) -> bool:
        """It can compute the bonus of a stored transition again, which `recompute` needs: it defines `measure`."""
        return type(self).measure is not Explorer.measure

    def __init__(self) -> None:
        super().__init__()
        self.alpha = Alpha(1.0)  # `make_explorer` sets the one of the options
        # Lists, because setting an attribute of a module is slow.
        self._cost = [0.0, 0.0]  # seconds and steps spent on the bonus, for the cost card
        self._window = [0.0, 0.0, 0.0, 0.0]  # n, Σ raw, Σ scaled, Σ scaled² since the last `metrics`
        self._early = EarlyShare()
        self._signs: dict[str, int] = {}  # kind of warning → how many times in a row there was reason for it
        self.report: Callable[[str, str], None] = print_warning  # takes the kind of a warning and its text

    # To be defined by a method.

    def _bonus(self, step: Transition) -> tuple[Tensor, Tensor]:
        """(raw, scaled) bonuses [N] of one vector step; updates memory and scaler."""
        raise NotImplementedError(f"{type(self).__name__} must define _bonus(step)")

    def _bonus_rollout(self, rollout: Transition, phi: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same for a rollout [T, N] in time order; override it if that can be faster than step by step."""
        steps = [self._bonus(rollout.map(itemgetter(t))) for t in range(len(rollout.reward))]
        return torch.stack([raw for raw, _ in steps]), torch.stack([scaled for _, scaled in steps])

    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        """(raw, scaled) bonuses [...] of transitions under the current memory, without updating anything."""
        raise UserError(f"explorer {type(self).__name__} cannot measure a bonus without updating its memory")

    def measure_actions(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """(raw, scaled) bonuses [..., A] of every action in a state, without updating anything."""
        raise UserError(f"explorer {type(self).__name__} cannot compare actions; use bonus_in=reward")

    def prepare(self, rollout: Transition) -> Transition:
        """A rollout [T, N] in the form that `loss` takes, before the algorithm splits it into minibatches."""
        return rollout

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        """The loss of the explorer's own parameters, and through them of the critic's trunk: L_f of CAE+.

        `phi` [..., d]: the critic's φ(s) with its gradient, if the algorithm's own loss has just computed it. Of an
        unroll [T, N] in time order it may be [T + 1, N, d], with φ of the observation after the last step.
        """
        return torch.zeros(())

    def scale(self, bonus: Tensor) -> Tensor:
        """Scaling in the learner, of a batch [T, B] of stored bonuses; the identity unless scaling=batch."""
        return bonus

    def refresh(self, replay: Replay) -> None:
        """Rebuild the memory under the current φ from replayed transitions, whenever the options schedule it."""

    # Inherited by every method.

    @torch.no_grad()
    def bonus(self, step: Transition) -> Tensor:
        """Scaled β of one vector step, [N]; updates memory and scaler."""
        started = perf_counter()
        try:
            raw, scaled = self._bonus(step)
        except NotFinite as error:
            raise UserError(str(error)) from error
        return self._record(step, raw, scaled, started)

    @torch.no_grad()
    def bonus_rollout(self, rollout: Transition, phi: Tensor | None = None) -> Tensor:
        """Scaled β of a rollout, [T, N]: equal to T calls of `bonus`, but faster.

        `phi` [T, N, d]: the critic's φ(s), if the algorithm has computed it and the critic takes only the state.
        """
        started = perf_counter()
        try:
            raw, scaled = self._bonus_rollout(rollout, phi)
        except NotFinite as error:
            raise UserError(str(error)) from error
        return self._record(rollout, raw, scaled, started)

    def _record(self, steps: Transition, raw: Tensor, scaled: Tensor, started: float) -> Tensor:
        """Accumulate the statistics of bonuses [N] or [T, N] for `metrics`."""
        window, cost, envs = self._window, self._cost, steps.info.get("env")
        # Lists are faster than tensors for one env.
        rows = (raw.tolist(), scaled.tolist(), steps.episode_start.tolist())
        for raws, scaleds, starts in zip(*rows, strict=True) if raw.ndim > 1 else (rows,):
            window[0] += len(raws)
            window[1] += sum(raws)
            window[2] += sum(scaleds)
            window[3] += sum([x * x for x in scaleds])
            self._early.add(raws, starts, None if envs is None else envs.tolist())
        cost[0] += perf_counter() - started
        cost[1] += raw.numel()
        return scaled.to(steps.reward.device)  # a Gram memory may be on the CPU, the rollout on a GPU

    def learned(self) -> list[nn.Parameter]:
        """The parameters that the algorithm adds to the critic's optimiser: all except frozen ones; none for CAE."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def metrics(self) -> dict[str, float]:
        """Since the last call: mean raw bonus, mean and standard deviation of the scaled bonus; and those of `alpha`.

        After a few episodes of at least forty steps, also the share of the bonus paid in their first ten steps.
        """
        n, raw, scaled, squares = self._window
        self._window = [0.0] * 4
        if tally := getattr(self, "tally", None):
            self._warn_once("counts", tally.warnings)
        if not n:  # as in a part of a combination, which records the bonuses of both
            return {}
        mean = scaled / n
        std = max(squares / n - mean**2, 0.0) ** 0.5
        self._warn_once("early", self._early.warnings)
        early = {} if self._early.value is None else {"bonus_early": self._early.value}
        return {"bonus": mean, "bonus_std": std, "bonus_raw": raw / n, **early, **self.alpha.metrics()}

    def _warn_once(self, kind: str, warnings: list[str]) -> None:
        """Report warnings of this kind once, after they have come up several times in a row."""
        if self._signs.get(kind, 0) < PATIENCE:
            self._signs[kind] = self._signs.get(kind, 0) + 1 if warnings else 0
            if self._signs[kind] == PATIENCE:
                self.report(kind, " ".join(warnings))

    def card(self) -> dict[str, float | int]:
        """The cost of the explorer: parameters and bytes added, and microseconds per step for the bonus."""
        tensors = [*self.parameters(), *self.buffers()]
        return {
            "parameters_added": sum(p.numel() for p in self.parameters()),
            "bytes": sum(t.numel() * t.element_size() for t in tensors),
            "bonus_us_per_step": 1e6 * self._cost[0] / max(self._cost[1], 1),
        }

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "window": list(self._window),
            "early": self._early.state_dict(),
            "signs": dict(self._signs),
            "alpha": self.alpha.state_dict(),
            "cost": list(self._cost),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._window = list(state["window"])
        self._early.load_state_dict(state["early"])
        self._signs = dict(state["signs"])
        self.alpha.load_state_dict(state["alpha"])
        self._cost = list(state["cost"])
