"""Helpers for all plug-ins: a version check, an explorer from its name, and its state as bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from operator import itemgetter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from critex.data import Transition
from critex.data.tree import Tree, tree_map
from critex.embedding import Embedding
from critex.errors import UserError, unknown
from critex.explorers import ExplorationConfig, Explorer, Setting, explorer_class, make_explorer
from critex.explorers._alpha import Alpha

# Options that only critex's own algorithms support.
OURS_ONLY = ("rebuild_every", "rebuild_rows")


def require_version(package: str, supported: str, extra: str) -> None:
    """Refuse a library that is missing, or whose version is not `supported`, such as "2.9" for every 2.9.x."""
    try:
        found = version(package)
    except PackageNotFoundError:
        raise UserError(f'{package} is not installed; pip install "critex[{extra}]"') from None
    if found.split(".")[: supported.count(".") + 1] != supported.split("."):
        raise UserError(
            f"critex.{extra} supports {package} {supported}.x, but {found} is installed; "
            f'pip install "{package}=={supported}.*"'
        )


def explorer_options(name: str, options: Mapping[str, Any]) -> Any:
    """The `Config` of the explorer `name`; unknown options, and those that plug-ins do not support, are refused."""
    config = explorer_class(name).Config
    known = {field.name for field in fields(config)} - set(OURS_ONLY)
    for option, value in options.items():
        if option in OURS_ONLY:
            raise UserError(f"{option} is for critex's own algorithms: it reads their replay buffer")
        if option not in known:
            raise unknown(f"option of explorer {name}", option, known)
        if option == "scaling" and value == "batch":
            raise UserError(
                "scaling='batch' is for critex's own algorithms: it scales in their learner; "
                "use scaling='welford' or scaling='none'"
            )
    return config(**options)


def build_explorer(name: str, alpha: Alpha, options: Any, setting: Setting, *, rollouts: bool) -> Explorer:
    """The explorer, determined by the setting's seed; torch's global random state is left unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(setting.own_seed())
        explorer = make_explorer(ExplorationConfig(explorer=name, bonus=options), setting, rollouts=rollouts)
    explorer.alpha = alpha
    return explorer


def without_critic(action_space: gym.Space[Any], reason: str) -> Embedding:
    """The embedding of a critic without a usable φ; explorers with their own encoder never call it."""

    def refuse(*_: Any) -> Tensor:
        raise UserError(reason)

    return Embedding.of(refuse, 1, action_space, takes_action=False)


def scaled_actions(space: gym.Space[Any]) -> gym.Space[Any]:
    """The space of the actions that a trainer stores scaled to [−1, 1]: all but continuous, bounded ones are unchanged."""
    if isinstance(space, gym.spaces.Box) and space.is_bounded():
        return gym.spaces.Box(-1.0, 1.0, space.shape, np.float32)
    return space


def to_tensors(obs: Any, device: torch.device | str = "cpu") -> Tree:
    """Arrays, or a dict of them, as tensors; float64 becomes float32, as networks expect."""
    if isinstance(obs, Mapping):
        return {key: to_tensors(value, device) for key, value in obs.items()}
    tensor = obs if isinstance(obs, Tensor) else torch.from_numpy(np.ascontiguousarray(obs))
    return tensor.to(device, torch.float32) if tensor.dtype == torch.float64 else tensor.to(device)


def flattened(embed: Callable[[Any], Tensor], obs: Tree, space: gym.Space[Any], rows: int = 4096) -> Tensor:
    """φ of observations with any leading dimensions, [..., d], from an `embed` that accepts only [B, …].

    Without gradient, `embed` gets at most `rows` observations at a time.
    """
    leaf: Any = obs
    while isinstance(space, gym.spaces.Dict):
        key, space = next(iter(space.items()))
        leaf = leaf[key]
    shape = leaf.shape[: leaf.ndim - len(space.shape or ())]
    n = shape.numel()
    flat = obs if len(shape) == 1 else tree_map(lambda x: x.reshape(n, *x.shape[len(shape) :]), obs)
    if n <= rows or torch.is_grad_enabled():
        phi = embed(flat)
    else:
        phi = torch.cat([embed(tree_map(itemgetter(slice(i, i + rows)), flat)) for i in range(0, n, rows)])
    return phi if len(shape) == 1 else phi.reshape(*shape, -1)


def to_bytes(state: Any) -> bytes:
    """A state of tensors, numbers and strings, as `torch.save` writes it."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def from_bytes(data: bytes) -> Any:
    """The inverse of `to_bytes`; torch refuses anything but tensors and plain values."""
    return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


class JointTraining:
    """Trains an explorer together with the critic, whose optimiser belongs to another library.

    Whenever the critic's optimiser takes a step, an Adam with the same learning rate takes one on the explorer's own
    parameters. The gradient of the explorer's loss with respect to the critic's trunk (CAE+) is added to the critic's
    own gradient. An explorer that does not learn is left unchanged.

    `sample(generator)` returns the transitions [B, …] for the loss, or None if there are none yet.
    """

    def __init__(
        self,
        explorer: Explorer,
        critic: torch.optim.Optimizer,
        sample: Callable[[torch.Generator], Transition | None],
        seed: int,
    ) -> None:
        self.explorer, self.critic, self.sample = explorer, critic, sample
        self.generator = torch.Generator().manual_seed(seed)
        self.loss: float | None = None
        """The loss of the last step."""
        self.optimizer: torch.optim.Optimizer | None = None
        self._hook: Any = None
        if learned := explorer.learned():
            group = critic.param_groups[0]
            self.optimizer = torch.optim.Adam(learned, lr=float(group["lr"]), eps=group.get("eps", 1e-8))

    def attach(self) -> None:
        """Start training with every step of the critic's optimiser."""
        if self.optimizer is not None:
            self._hook = self.critic.register_step_pre_hook(lambda *_: self.step())

    def detach(self) -> None:
        """Stop training."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def step(self) -> None:
        """One step on the explorer's loss."""
        batch, own = self.sample(self.generator), self.optimizer
        if batch is None or own is None:
            return
        own.param_groups[0]["lr"] = float(self.critic.param_groups[0]["lr"])
        own.zero_grad()
        with torch.enable_grad():
            loss = self.explorer.loss(batch)
            loss.backward()
        own.step()
        self.loss = float(loss.detach())

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimiser and of the generator."""
        own = {} if self.optimizer is None else {"optimizer": self.optimizer.state_dict()}
        return {"generator": self.generator.get_state(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.generator.set_state(state["generator"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
