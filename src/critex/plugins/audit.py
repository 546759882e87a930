"""Audit a training loop: does it use the bonus as intended? Every finding is one sentence.

    envs = [critex.audit.Recorder(env) for env in envs]         # records what really happened
    ...                                                         # train
    print(critex.audit.audit(critex.audit.Record(alpha=0.2, bonus=bonus, stored_reward=rewards, …), envs))

A `Record` holds the loop's own data, [T, N] in time order; the recorders hold the truth. Most fields are optional:
a check without its data is reported as not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from critex.errors import UserError

Array = NDArray[Any]


@dataclass(frozen=True)
class Finding:
    """One check: passed, failed, or (None) not possible with the data given."""

    check: str
    passed: bool | None
    sentence: str

    def __str__(self) -> str:
        return f"{ {True: 'ok', False: 'PROBLEM', None: 'not checked'}[self.passed] }: {self.sentence}"


class Report(list[Finding]):
    """The findings of an audit; prints one line each."""

    @property
    def problems(self) -> list[str]:
        """The names of the checks that failed."""
        return [finding.check for finding in self if finding.passed is False]

    def __str__(self) -> str:
        return "\n".join(map(str, self))


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Records the true transitions of one environment. It wraps the environment that the trainer sees."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.firsts: list[Array] = []  # the first observation of each episode
        self.starts: list[int] = []  # and the number of steps before it
        self.next_obs: list[Array] = []
        self.reward: list[float] = []
        self.ended: list[bool] = []

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**keywords)
        self.firsts.append(_vector(obs))
        self.starts.append(len(self.reward))
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.next_obs.append(_vector(obs))
        self.reward.append(float(reward))
        self.ended.append(bool(terminated or truncated))
        return obs, reward, terminated, truncated, info

    def returns(self) -> list[float]:
        """The extrinsic return of every finished episode, not of those that `reset` cut short."""
        ends = [t + 1 for t, ended in enumerate(self.ended) if ended]
        spans = pairwise(sorted({0, *self.starts, *ends}))
        return [sum(self.reward[a:b]) for a, b in spans if self.ended[b - 1]]


@dataclass(kw_only=True)
class Record:
    """The loop's own data, in time order: the last T steps of each of its N environments."""

    alpha: float | Array
    """α, or α of every step [T, 1] if it changed."""
    bonus: Array
    """β [T, N], as the explorer gave it, without α."""
    stored_reward: Array
    """The rewards [T, N] in the buffer from which the loop learns."""
    obs: Any = None
    """s [T, N, …], an array or a dict."""
    next_obs: Any = None
    """s' [T, N, …] as the explorer or the learner saw it."""
    ended: Array | None = None
    """[T, N], the episode ended with this step."""
    returns: Array | None = None
    """The returns [T, N] from which the loop learned (on-policy); needs the next four fields as well."""
    values: Array | None = None
    last_values: Array | None = None
    gamma: float = 0.99
    gae_lambda: float = 0.95
    bootstrapped: Array | None = None
    """The values that the loop added to rewards [T, N] to bootstrap truncated episodes, if any."""
    reported_evaluation: Sequence[float] = ()
    """Returns of evaluation episodes as the loop reports them, with the recorders of `audit(…, evaluation=…)`."""
    phi_before: Array | None = None
    """φ of some transitions [n, d] when they were added to the memory, …"""
    phi_after: Array | None = None
    """… φ of the same transitions `phi_steps` steps later, …"""
    phi_steps: int = 0
    memory_steps: float = 0
    """… and for how many steps the memory keeps a transition: the episode's length, or the whole run."""

    def __post_init__(self) -> None:
        shape = np.shape(self.bonus)
        if len(shape) != 2 or not all(shape):
            raise UserError(f"bonus must be [T, N], got {list(shape)}; a single environment has N = 1")
        if (alpha := np.shape(self.alpha)) not in ((), (shape[0], 1), shape):
            raise UserError(f"alpha must be a number or [T, 1], here {[shape[0], 1]}; got {list(alpha)}")
        for name in ("bonus", "stored_reward", "ended", "returns", "values", "bootstrapped"):
            if (given := getattr(self, name)) is not None:
                setattr(self, name, _per_step(name, given, shape))


def audit(
    record: Record,
    envs: Sequence[Recorder] = (),
    *,
    evaluation: Sequence[Recorder] = (),
    levels: Mapping[int, Sequence[Any]] | None = None,
) -> Report:
    """Run every check for which `record` and the recorders have the data.

    `evaluation` are the recorders of the evaluation environments. `levels` has, per seed, the first observations of
    the training episodes (`recorder.firsts`).
    """
    rewards = None
    if envs:
        steps = len(record.bonus)
        _require_same_steps(record, envs)
        rewards = np.stack([env.reward[-steps:] for env in envs], axis=1)
    return Report(
        [
            check_stored(record, rewards),
            check_returns(record),
            check_pairs(record),
            check_finals(record, envs),
            check_evaluation(record.reported_evaluation, evaluation),
            check_seeds(levels or {}),
            check_scale(record, rewards),
            check_drift(record),
        ]
    )


def _require_same_steps(record: Record, envs: Sequence[Recorder]) -> None:
    """Refuse recorders whose last T steps are not the record's."""
    steps, columns = record.bonus.shape
    if len(envs) != columns:
        raise UserError(f"{len(envs)} recorders for a record of {columns} environments; give one for each")
    for i, env in enumerate(envs):
        same = len(env.ended) >= steps
        if same and record.ended is not None:
            same = np.array_equal(np.asarray(record.ended, bool)[:, i], env.ended[-steps:])
        if not same:
            raise UserError(
                f"the record's {steps} steps are not the last ones of recorder {i}; with gymnasium's default autoreset the "
                "step after an episode's end only resets: make the envs with autoreset_mode=AutoresetMode.SAME_STEP"
            )


def check_stored(record: Record, rewards: Array | None) -> Finding:
    """Stored reward = r + αβ (+ a bootstrapped value), with r from the environment itself."""
    name = "bonus stored"
    if rewards is None:
        return _skipped(name, "whether the stored rewards hold the bonus; it needs recorders around the envs")
    extra = 0.0 if record.bootstrapped is None else record.bootstrapped
    mixed = rewards + record.alpha * record.bonus + extra
    wrong = ~np.isclose(record.stored_reward, mixed, rtol=1e-4, atol=1e-5)
    if not wrong.any():
        return Finding(
            name, True, "every stored reward is r + αβ, and it was stored after the bonus was added."
        )
    plain = np.isclose(record.stored_reward, rewards + extra, rtol=1e-4, atol=1e-5)
    if plain[wrong].all():
        which = "without its bonus: the bonus came after the transition was copied into the buffer"
    else:
        which = "neither with nor without its bonus: something else changed the reward, or the bonus was added twice"
    return Finding(name, False, f"{_share(wrong)} of the stored rewards are {which}.")


def check_returns(record: Record) -> Finding:
    """The returns follow from the stored rewards, that is, they were computed after the bonus was added."""
    name = "bonus in returns"
    parts = (record.returns, record.values, record.last_values, record.ended)
    if any(part is None for part in parts):
        return _skipped(
            name, "the returns; it needs returns, values, last_values and ended (on-policy loops)"
        )
    expected = _returns(record, record.stored_reward)
    if np.allclose(np.asarray(record.returns), expected, rtol=1e-3, atol=1e-4):
        return Finding(name, True, "the returns were computed from rewards that hold the bonus.")
    plain = _returns(record, record.stored_reward - record.alpha * record.bonus)
    if np.allclose(np.asarray(record.returns), plain, rtol=1e-3, atol=1e-4):
        return Finding(
            name,
            False,
            "the returns were computed before the bonus was added, so the agent never learned from it.",
        )
    return Finding(
        name, False, "the returns follow neither from the stored rewards nor from those without the bonus."
    )


def check_pairs(record: Record) -> Finding:
    """In no pair (s, s') does s' belong to the next episode."""
    name = "pairs"
    if record.obs is None or record.next_obs is None or record.ended is None:
        return _skipped(name, "the pairs (s, s'); it needs obs, next_obs and ended")
    obs, next_obs, ended = _rows(record, "obs"), _rows(record, "next_obs"), np.asarray(record.ended, bool)
    ends = ended[:-1]
    crossing = ends & (next_obs[:-1] == obs[1:]).all(-1)
    apart = ~ends & ~(next_obs[:-1] == obs[1:]).all(-1)
    if crossing.any():
        return Finding(
            name,
            False,
            f"{crossing.sum()} of {ends.sum()} episode ends are crossed by a pair: s' is the first state of the next "
            "episode.",
        )
    if apart.any():
        return Finding(
            name, False, f"{apart.sum()} pairs inside an episode have an s' that is not the next s."
        )
    return Finding(name, True, f"no pair crosses one of the {ends.sum()} episode ends.")


def check_finals(record: Record, envs: Sequence[Recorder]) -> Finding:
    """Where an episode ended, s' is what the environment returned with its last step."""
    name = "final observations"
    if record.next_obs is None or not envs:
        return _skipped(name, "the final observations; it needs next_obs and recorders around the envs")
    next_obs = _rows(record, "next_obs")
    steps = len(next_obs)
    wrong = total = 0
    for i, env in enumerate(envs):
        for t, (true, ended) in enumerate(zip(env.next_obs[-steps:], env.ended[-steps:], strict=True)):
            total += ended
            wrong += ended and not np.allclose(next_obs[t, i], true, rtol=1e-5, atol=1e-6)
    if not total:
        return _skipped(name, "the final observations: no episode ended")
    if wrong:
        return Finding(
            name, False, f"{wrong} of {total} final observations are not those the environment returned."
        )
    return Finding(name, True, f"all {total} final observations are the true ones.")


def check_evaluation(reported: Sequence[float], envs: Sequence[Recorder]) -> Finding:
    """Reported evaluation returns are sums of the environment's own rewards."""
    name = "evaluation"
    true = sorted(x for env in envs for x in env.returns())
    if not len(reported) or not true:
        return _skipped(name, "the evaluation; it needs reported_evaluation and recorders around its envs")
    if len(true) == len(reported) and np.allclose(sorted(reported), true, rtol=1e-4, atol=1e-5):
        return Finding(name, True, "the evaluation reports the environment's own returns, free of any bonus.")
    return Finding(
        name,
        False,
        f"the evaluation reports {np.mean(reported):.4g} on average where the environment paid {np.mean(true):.4g}: "
        "its returns hold something else, such as the bonus.",
    )


def check_seeds(levels: Mapping[int, Sequence[Any]]) -> Finding:
    """Two seeds do not give the same sequence of first observations."""
    name = "seeds"
    if len(levels) < 2:
        return _skipped(name, "the seeds; it needs the first observations of two seeds or more")
    seen: dict[bytes, int] = {}
    for seed, firsts in levels.items():
        key = b"".join(_vector(first).tobytes() for first in firsts)
        if key in seen:
            return Finding(name, False, f"seeds {seen[key]} and {seed} play exactly the same levels.")
        seen[key] = seed
    return Finding(name, True, f"{len(levels)} seeds give {len(levels)} different sequences of levels.")


def check_scale(record: Record, rewards: Array | None) -> Finding:
    """The bonus of an episode, αΣ|β|, is neither negligible nor dominant beside its reward Σ|r|."""
    name = "bonus scale"
    if rewards is None:
        return _skipped(name, "the scale of the bonus; it needs recorders around the envs")
    bonus, reward = float(np.abs(record.alpha * record.bonus).sum()), float(np.abs(rewards).sum())
    if not reward:
        return Finding(name, None, "no reward was found yet, so all of the return is bonus.")
    episodes = max(int(np.sum(record.ended)) if record.ended is not None else 1, 1)
    share = bonus / (bonus + reward)
    per = f"{bonus / episodes:.3g} beside {reward / episodes:.3g} of reward per episode, {100 * share:.2g} % of the sum"
    if share > 0.9:
        return Finding(name, False, f"the bonus drowns out the reward: {per}; lower α.")
    if share < 1e-3:
        return Finding(name, False, f"the bonus is too small to matter: {per}; raise α.")
    return Finding(name, True, f"the bonus is {per}.")


def check_drift(record: Record) -> Finding:
    """φ must not change by its own norm within the time for which the memory keeps a transition."""
    name = "drift of φ"
    before, after = record.phi_before, record.phi_after
    if before is None or after is None or not record.phi_steps:
        return _skipped(name, "the drift of φ; it needs phi_before, phi_after, phi_steps and memory_steps")
    moved = float(np.linalg.norm(after - before)) / max(float(np.linalg.norm(before)), 1e-12)
    kept = moved * record.memory_steps / record.phi_steps
    pace = f"φ moves by {100 * moved:.3g} % in {record.phi_steps} steps, and the memory keeps {record.memory_steps:.0f}"
    if kept > 1:
        return Finding(
            name,
            False,
            f"{pace}: it measures novelty against features that no longer exist; shorten the memory "
            "(scope='episodic', or rebuild_every in critex's algorithms) or slow the critic.",
        )
    return Finding(name, True, f"{pace}: φ drifts more slowly than the memory forgets.")


def _returns(record: Record, rewards: Array) -> Array:
    """Â + V by generalised advantage estimation on these rewards, [T, N]."""
    values = np.asarray(record.values, np.float64)
    following = np.concatenate([values[1:], np.asarray(record.last_values, np.float64).reshape(1, -1)])
    going = 1.0 - np.asarray(record.ended, np.float64)
    advantage = np.zeros_like(values)
    tail = np.zeros(values.shape[1])
    for t in reversed(range(len(values))):
        delta = rewards[t] + record.gamma * following[t] * going[t] - values[t]
        advantage[t] = tail = delta + record.gamma * record.gae_lambda * going[t] * tail
    return advantage + values


def _vector(obs: Any) -> Array:
    """An observation as one float64 vector."""
    if isinstance(obs, Mapping):
        return np.concatenate([_vector(obs[key]) for key in sorted(obs)])
    return np.asarray(obs, np.float64).ravel()


def _rows(record: Record, name: str) -> Array:
    """Observations [T, N, …] as rows [T, N, k]."""
    shape = record.bonus.shape

    def flat(obs: Any) -> Array:
        if isinstance(obs, Mapping):
            return np.concatenate([flat(obs[key]) for key in sorted(obs)], axis=-1)
        return _per_step(name, np.asarray(obs, np.float64), shape).reshape(*shape, -1)

    return flat(getattr(record, name))


def _per_step(name: str, given: Any, shape: tuple[int, ...]) -> Array:
    """An array [T, N, …]."""
    array = np.asarray(given)
    if array.shape[:2] != shape:
        raise UserError(
            f"the shape of {name} must begin with that of bonus, {list(shape)}; got {list(array.shape)}"
        )
    return array


def _share(mask: Array) -> str:
    return f"{100 * mask.mean():.3g} %"


def _skipped(name: str, sentence: str) -> Finding:
    return Finding(name, None, f"{sentence}.")
