"""The one protocol that every exploration method follows."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from time import perf_counter
from typing import Any, ClassVar

import gymnasium as gym
import torch
from torch import Tensor, nn

from critex.bonus import NotFinite
from critex.data import Replay, Transition, derive_seed
from critex.data.tree import Tree
from critex.embedding import Embedding
from critex.errors import UserError
from critex.networks.nethack import NetworkName


@dataclass(frozen=True)
class Setting:
    """What an explorer may know of the place it works in: no algorithm and no env."""

    embedding: Embedding
    """φ of the critic that is already there, and the shape of its actions."""
    observation_space: gym.Space[Any] | None = None
    num_envs: int = 1
    seed: int = 0
    nethack: NetworkName = "compact"
    """The size of an explorer's own encoder of NetHack's screen."""

    def own_seed(self) -> int:
        """The seed of the explorer's own draws, a stream apart from the agent's."""
        return derive_seed(self.seed, "explorer")


@dataclass(frozen=True)
class NoOptions:
    """An explorer without options."""


class Explorer(nn.Module):
    """Pays a bonus β for what is new. An explorer fills in `_bonus`, and `loss` if it learns.

    `bonus` and `bonus_rollout` return the scaled β, never multiplied by the coefficient α (which belongs to
    the algorithm, so that a buffer holds reward and bonus side by side), carry no gradient, and advance memory
    and scaler. `measure` changes nothing. `learned()` is what the algorithm adds to the critic's optimiser.
    """

    Config: ClassVar[type] = NoOptions
    episodic: bool = False
    """Its memory ends with the episode, so a bonus cannot be measured again later."""
    compares_actions: bool = False
    """It can measure the bonus of every action in a state, which `bonus_in=value` needs."""

    def __init__(self) -> None:
        super().__init__()
        # Lists, because it takes a module long to set an attribute.
        self._cost = [0.0, 0.0]  # seconds and steps of the bonus, for the card; of this process only
        self._window = [0.0, 0.0, 0.0, 0.0]  # n, Σ raw, Σ scaled, Σ scaled² since the last `metrics`

    # What an explorer fills in.

    def _bonus(self, step: Transition) -> tuple[Tensor, Tensor]:
        """(raw, scaled) bonuses [N] of one vector step; advances memory and scaler."""
        raise AssertionError(f"{type(self).__name__} does not say how it computes a bonus")

    def _bonus_rollout(self, rollout: Transition, phi: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same for [T, N] in time order; explorers with a faster way than step by step override it."""
        steps = [self._bonus(rollout.map(itemgetter(t))) for t in range(len(rollout.reward))]
        return torch.stack([raw for raw, _ in steps]), torch.stack([scaled for _, scaled in steps])

    def measure(self, obs: Tree, action: Tensor, next_obs: Tree | None = None) -> tuple[Tensor, Tensor]:
        """(raw, scaled) bonuses of given transitions as of now; nothing changes."""
        raise UserError(f"explorer {type(self).__name__} cannot measure a bonus without advancing its memory")

    def measure_actions(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """(raw, scaled) bonuses [..., A] of every action in a state; nothing changes."""
        raise UserError(f"explorer {type(self).__name__} cannot compare actions; use bonus_in=reward")

    def prepare(self, rollout: Transition) -> Transition:
        """A rollout [T, N] as `loss` wants it, before the algorithm cuts it into minibatches."""
        return rollout

    def loss(self, batch: Transition, phi: Tensor | None = None) -> Tensor:
        """What the explorer's own parameters, and through them the critic's trunk, minimise: L_f of CAE+.

        `phi` [..., d]: the critic's φ(s) with its gradient, where the algorithm's own loss has just computed it. Of an
        unroll [T, N] in time order it may be [T + 1, N, d], with φ of the observation after the last step.
        """
        return torch.zeros(())

    def scale(self, bonus: Tensor) -> Tensor:
        """Scaling that happens in the learner, on a batch [T, B] of stored bonuses; else the identity."""
        return bonus

    def refresh(self, replay: Replay) -> None:
        """Recompute memory under today's φ from replayed transitions, when the options say it is time."""

    # What every explorer has.

    @torch.no_grad()
    def bonus(self, step: Transition) -> Tensor:
        """Scaled β of one vector step, [N]; then the memory and the scaler have seen it."""
        started = perf_counter()
        try:
            raw, scaled = self._bonus(step)
        except NotFinite as error:
            raise UserError(str(error)) from error
        return self._record(raw, scaled, started)

    @torch.no_grad()
    def bonus_rollout(self, rollout: Transition, phi: Tensor | None = None) -> Tensor:
        """Scaled β of a whole rollout, [T, N]: what T calls of `bonus` give, but faster.

        `phi` [T, N, d]: the critic's φ(s), where the algorithm has it already and the critic takes only the state.
        """
        started = perf_counter()
        try:
            raw, scaled = self._bonus_rollout(rollout, phi)
        except NotFinite as error:
            raise UserError(str(error)) from error
        return self._record(raw, scaled, started)

    def _record(self, raw: Tensor, scaled: Tensor, started: float) -> Tensor:
        flat = (raw, scaled) if raw.ndim == 1 else (raw.flatten(), scaled.flatten())
        raws, scaleds = flat[0].tolist(), flat[1].tolist()  # for one env faster than tensors
        window, cost = self._window, self._cost
        window[0] += len(raws)
        window[1] += sum(raws)
        window[2] += sum(scaleds)
        window[3] += sum([x * x for x in scaleds])
        cost[0] += perf_counter() - started
        cost[1] += len(raws)
        return scaled

    def learned(self) -> list[nn.Parameter]:
        """What the algorithm adds to the critic's optimiser: every parameter that is not frozen; none for CAE."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def metrics(self) -> dict[str, float]:
        """Mean raw bonus, and mean and standard deviation of the scaled bonus, since the last call."""
        n, raw, scaled, squares = self._window
        self._window = [0.0] * 4
        if not n:
            return {}
        mean = scaled / n
        std = max(squares / n - mean**2, 0.0) ** 0.5
        return {"bonus": mean, "bonus_std": std, "bonus_raw": raw / n}

    def card(self) -> dict[str, float | int]:
        """What the explorer costs: parameters and bytes added, and microseconds a step for the bonus."""
        tensors = [*self.parameters(), *self.buffers()]
        return {
            "parameters_added": sum(p.numel() for p in self.parameters()),
            "bytes": sum(t.numel() * t.element_size() for t in tensors),
            "bonus_us_per_step": 1e6 * self._cost[0] / max(self._cost[1], 1),
        }

    def get_extra_state(self) -> dict[str, Any]:
        return {"window": list(self._window)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._window = list(state["window"])
