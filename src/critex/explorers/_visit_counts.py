"""How often each state was visited, N(s): within the episode of each env, or over the whole run."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from critex.data import Transition
from critex.data.tree import Tree, tree_map
from critex.errors import UserError
from critex.explorers.base import Setting
from critex.networks.encoder import is_image

Key = Literal["auto", "position", "image", "obs"]
Of = Literal["next_state", "state_action"]
Keys = NDArray[np.int64]
ENOUGH = 2000
"""Steps after which some state should have come twice."""
GOLDEN = np.int64(-7046029254386353131)  # 2⁶⁴ over the golden ratio: keeps (s, 0), (s, 1), … apart


@dataclass(frozen=True)
class EpisodicCountConfig:
    """Which states of an episode count as the same one."""

    key: Key = "auto"
    """When two states of an episode count as the same: same position (if the env reports one), same image (all images
    in the observation), or same obs (the whole observation as the agent sees it). auto: position if there is one,
    else obs."""
    count_start: bool = True
    """Count the first state of an episode as visited. The authors' code does not."""


class VisitCounts(nn.Module):
    """Visit counts N of states, or of state-action pairs, that share a key; the current visit is included.

    - position: info["position"] of s', if the env reports one;
    - image: the images of the observation;
    - obs: the whole observation as the agent sees it;
    - auto: position if the env reports one, else obs.

    `count_start` counts the first state of an episode as well. Rows count in time order, and in env order within a
    vector step. Episodic counts have one table per env; a lifelong table is shared. Keys are 64-bit hashes.
    """

    def __init__(
        self,
        key: Key,
        setting: Setting,
        *,
        episodic: bool,
        of: Of = "next_state",
        count_start: bool = True,
    ) -> None:
        super().__init__()
        if setting.observation_space is None:
            raise ValueError("counting states needs observation_space in the Setting")
        self.space, self.num_actions = setting.observation_space, setting.embedding.action_dim
        self.key, self.of, self.episodic, self.count_start = key, of, episodic, count_start
        self.tables: list[dict[int, int]] = [{} for _ in range(setting.num_envs if episodic else 1)]
        self.visited, self.revisited = 0, False
        if key == "image" and not _parts(self.space, self.space, images=True):
            raise UserError("key=image needs an image in the observation; use key=obs or key=position")
        if of == "state_action":
            if not setting.embedding.discrete:
                raise UserError("of=state_action needs discrete actions; use of=next_state")
            if key == "position":
                raise UserError("of=state_action counts states s, and positions are those of s'; use key=obs")
            if key == "auto":
                self.key = "obs"

    def visit(self, steps: Transition) -> Tensor:
        """Count transitions [N] or [T, N]; returns N for each, this visit included."""
        shape = steps.reward.shape
        if self.episodic and shape[-1] != len(self.tables):
            raise ValueError(f"{shape[-1]} rows for {len(self.tables)} envs")
        keys, starts = self._step_keys(steps).ravel().tolist(), steps.episode_start.flatten().tolist()
        firsts = iter(self._first_keys(steps).tolist())
        counts = []
        for i, (key, start) in enumerate(zip(keys, starts, strict=True)):
            table = self.tables[i % len(self.tables)]
            if start:
                if self.episodic:
                    table.clear()
                if (first := next(firsts, None)) is not None:
                    table[first] = table.get(first, 0) + 1
            table[key] = count = table.get(key, 0) + 1
            counts.append(count)
        self.visited += len(counts)
        self.revisited = self.revisited or max(counts, default=0) > 1
        return torch.tensor(counts, device=steps.reward.device).view(shape)

    @property
    def warnings(self) -> list[str]:
        """One if no state ever came twice: then all that the counts say is that everything is new."""
        if self.revisited or self.visited < ENOUGH or self.key == "position":
            return []
        return [
            f"no state was visited twice in {self.visited:,} steps, so counts mean nothing; observations must repeat exactly, "
            "which they do not if they are real numbers, or normalised (PPO: --no-normalize-obs)"
        ]

    def count(self, keys: Keys) -> Tensor:
        """N of keys [...] so far, without counting anything."""
        (table,) = self.tables
        return torch.tensor([table.get(key, 0) for key in keys.ravel().tolist()]).view(keys.shape)

    def keys(self, obs: Tree, action: Tensor, next_obs: Tree | None) -> Keys:
        """The keys of transitions [...]; not for key=position."""
        if self.of == "state_action":
            return _with_action(self._hash(obs), action.numpy(force=True))
        if self.key in ("auto", "position"):
            raise UserError("a replay buffer stores no positions; use key=obs")
        if next_obs is None:
            raise ValueError("counts of s' need next_obs")
        return self._hash(next_obs)

    def action_keys(self, obs: Tree) -> Keys:
        """The keys of every action in states [...], [..., A]."""
        return _with_action(self._hash(obs)[..., None], np.arange(self.num_actions))

    def _step_keys(self, steps: Transition) -> Keys:
        """The keys of s', or of (s, a)."""
        if self.of == "next_state":
            position = steps.info.get("position")
            if self.key == "auto":
                self.key = "obs" if position is None else "position"
            if self.key == "position":
                if position is None:
                    raise UserError("key=position needs an env that gives info['position']; use key=obs")
                return hashes((position, 1))
        return self.keys(steps.obs, steps.action, steps.next_obs)

    def _first_keys(self, steps: Transition) -> Keys:
        """The keys of the first states s₀; empty if pairs (s, a) are counted, or the position of s₀ is unknown."""
        starts, place = steps.episode_start, steps.info.get("start_position")
        unknown = self.key == "position" and place is None
        if self.of == "state_action" or not self.count_start or unknown or not starts.any():
            return np.empty(0, np.int64)
        if self.key == "position" and place is not None:
            return hashes((place[starts], 1))
        return self._hash(tree_map(lambda x: x[starts], steps.obs))

    def _hash(self, obs: Tree) -> Keys:
        """The keys of observations [...]."""
        return hashes(*_parts(self.space, obs, images=self.key == "image"))

    def get_extra_state(self) -> dict[str, Any]:
        def columns(table: dict[int, int]) -> list[Tensor]:
            return [torch.tensor(list(column), dtype=torch.int64) for column in (table, table.values())]

        tables = [columns(table) for table in self.tables]
        return {"key": self.key, "tables": tables, "visited": self.visited, "revisited": self.revisited}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.key, self.visited, self.revisited = state["key"], state["visited"], state["revisited"]
        self.tables = [dict(zip(*(c.tolist() for c in columns), strict=True)) for columns in state["tables"]]


def hashes(*parts: tuple[Tensor, int]) -> Keys:
    """A 64-bit hash of every row, [...]; a part is a tensor [..., *shape] with the length of its shape."""
    first, ndim = parts[0]
    batch = first.shape[: first.ndim - ndim]
    rows = np.concatenate([_bytes(part, batch.numel()) for part, _ in parts], axis=1)
    digests = b"".join(blake2b(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, np.int64).reshape(batch)


def _bytes(part: Tensor, rows: int) -> NDArray[np.uint8]:
    array = part.numpy(force=True).reshape(rows, -1)
    array = array + 0.0 if part.is_floating_point() else np.ascontiguousarray(array)  # −0 is 0
    return array.view(np.uint8)


def _parts(space: gym.Space[Any], obs: Any, *, images: bool) -> list[tuple[Any, int]]:
    """The leaves of an observation, or only its images, each with its number of dimensions."""
    if isinstance(space, gym.spaces.Dict):
        return [part for key, child in space.items() for part in _parts(child, obs[key], images=images)]
    return [(obs, len(space.shape or ()))] if is_image(space) or not images else []


def _with_action(keys: Keys, action: NDArray[np.int64]) -> Keys:
    return keys + (action.astype(np.int64) + 1) * GOLDEN
