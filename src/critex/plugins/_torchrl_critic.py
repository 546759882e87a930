"""φ of the critic in TorchRL: by the keys of its TensorDict, and with the weights that a loss trains."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.objectives import LossModule

from critex.console import notice
from critex.data.tree import Tree
from critex.errors import UserError
from critex.facade._loop import form_of
from critex.networks.hidden import last_hidden

Key = str | tuple[str, ...]
CRITICS = ("qvalue_network", "value_network", "critic_network")
"""What TorchRL's losses call their critic; where there is a Q(s,a) and a V(s), as in IQL, the first counts."""
PATIENCE = 100_000
"""Steps until a critic that does not change is reported: more than any usual warm-up without training."""


class critic_of(last_hidden):
    """φ of the critic that `loss` trains, for `embed=`.

    SACLoss, TD3Loss, REDQLoss, CQLLoss, IQLLoss and others train several copies of the Q network that they are given,
    and never that network itself. This is φ of the first copy, with its current weights. `layer` as in
    `critex.last_hidden`.
    """

    def __init__(self, loss: LossModule, layer: str | nn.Linear | None = None) -> None:
        name = next((name for name in CRITICS if getattr(loss, name, None) is not None), None)
        if name is None:
            raise UserError(f"{type(loss).__name__} has no critic: no {', '.join(CRITICS)}")
        super().__init__(getattr(loss, name), layer)
        self.loss, self._params = loss, f"{name}_params"

    def __call__(self, *inputs: Any, **keywords: Any) -> Tensor:
        """φ, with its gradient."""
        params = getattr(self.loss, self._params, None)
        if params is None:  # a loss with functional=False
            return super().__call__(*inputs, **keywords)
        with (params[0] if params.batch_dims else params).to_module(self.module):
            return super().__call__(*inputs, **keywords)


class ByKey:
    """φ as a function of (obs, action), from an `embed` whose critic reads them from a TensorDict, in any order."""

    def __init__(self, embed: last_hidden, action_key: Key) -> None:
        self.embed, self.action_key = embed, action_key
        self.keys: Any = embed.module.in_keys
        self.__self__ = embed.module  # where `Embedding` looks for the device

    def __call__(self, obs: Tree, *action: Tensor) -> Tensor:
        entries = TensorDict({}, [])
        for key in self.keys:
            if key == self.action_key:
                (entries[key],) = action
            else:
                entries[key] = obs[name_of(key)] if isinstance(obs, Mapping) else obs
        return self.embed(entries)


def adapted(
    embed: Callable[..., Tensor], takes_action: bool | None, in_keys: Sequence[Key], action_key: Key
) -> tuple[Callable[..., Tensor], bool]:
    """(`embed` as a function of tensors, whether it takes the action): found in its keys or signature, if not given."""
    if isinstance(embed, last_hidden) and isinstance(embed.module, TensorDictModuleBase):
        reads = set(embed.module.in_keys)
        if missing := reads - {*in_keys, action_key}:
            raise UserError(
                f"the critic reads {', '.join(sorted(map(name_of, missing)))}; give all its observations as in_keys="
            )
        return ByKey(embed, action_key), action_key in reads
    if takes_action is None:
        try:
            takes_action = form_of(embed) == "state_action"
        except ValueError:  # the signature leaves it open, as that of torchrl's MLP(*inputs)
            takes_action = False
    return embed, takes_action


def weights_of(embed: Callable[..., Tensor] | None) -> list[nn.Parameter]:
    """What training should change in φ; nothing if it is frozen, or a plain function."""
    if isinstance(embed, critic_of):
        owner = embed.loss
    else:
        owner = embed.module if isinstance(embed, last_hidden) else getattr(embed, "__self__", embed)
    return [p for p in owner.parameters() if p.requires_grad] if isinstance(owner, nn.Module) else []


def refuse_copy(embed: Callable[..., Tensor]) -> None:
    """Refuse, in a process that TorchRL started, a critic that is trained in another."""
    # Not `parent_process()`: a whole training may well run in a child process.
    started = getattr(multiprocessing.current_process(), "_target", None)
    if getattr(started, "__module__", "").startswith("torchrl.") and weights_of(embed):
        raise UserError(
            "in a worker process of TorchRL, embed= is a copy of the critic that no training reaches; in a collector, let "
            "the policy write φ and give phi_key= instead; of a ParallelEnv, transform the whole, not its parts"
        )


class Untrained:
    """Says once that φ belongs to a network that nobody trains."""

    def __init__(self, embed: Callable[..., Tensor] | None) -> None:
        self.weights, self.steps = weights_of(embed), 0
        self.first: list[float] = []

    def step(self) -> None:
        """Compare the weights after `PATIENCE` steps with those of the first."""
        if not self.weights or self.steps > PATIENCE:
            return
        if self.steps in (0, PATIENCE):
            sums = [float(p.detach().double().sum()) for p in self.weights]
            if self.steps and sums == self.first:
                notice(
                    f"no weight of the critic given as embed= has changed in {PATIENCE} steps; if a loss trains copies "
                    "of it, as SACLoss does, give embed=critex.torchrl.critic_of(loss)"
                )
            self.first = sums
        self.steps += 1


def name_of(key: Key) -> str:
    """A key as one word."""
    return key if isinstance(key, str) else ".".join(key)
