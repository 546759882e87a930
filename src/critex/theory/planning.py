"""Exact values by dynamic programming, episodes of many seeds at once, and their exact regret."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol
from zlib import crc32

import numpy as np

from critex.theory.problems import Array, Integers, Problem


class Streams:
    """One generator for each seed, so that its draws do not depend on which other seeds run at the same time."""

    def __init__(self, seeds: Sequence[int], name: str) -> None:
        self.seeds = tuple(seeds)
        self._generators = [np.random.default_rng([seed, crc32(name.encode())]) for seed in seeds]

    def __len__(self) -> int:
        return len(self.seeds)

    def uniform(self, *shape: int) -> Array:
        """Uniform on [0, 1), [S, *shape]."""
        return np.array([g.random(shape) for g in self._generators])

    def normal(self, *shape: int) -> Array:
        """Standard normal, [S, *shape]."""
        return np.array([g.standard_normal(shape) for g in self._generators])


class Episode(NamedTuple):
    """One episode of each seed."""

    states: Integers  # [S, H + 1]
    actions: Integers  # [S, H]
    rewards: Array  # [S, H]


class Agent(Protocol):
    """Plays episode m greedily by its Q^m, then learns from it."""

    def q(self) -> Array:
        """Q_h^m(s,a) for every step, state and action, [S, H, n, A]."""

    def update(self, episode: Episode) -> None:
        """Learn from an episode of each seed."""


def optimal(problem: Problem) -> Array:
    """Q*_h(s,a) = r(s,a) + Σ P(s'|s,a) max_a' Q*_{h+1}(s',a'), [I, H, n, A]."""
    q = np.zeros((len(problem.reward), problem.horizon + 1, problem.states, problem.actions))
    for h in reversed(range(problem.horizon)):
        value = q[:, h + 1].max(-1)
        q[:, h] = problem.reward + np.einsum("isat,it->isa", problem.transition, value)
    return q[:, :-1]


def evaluate(problem: Problem, policy: Integers) -> Array:
    """V_1^π(s) of a Markov policy π_h(s) [S, H, n], exactly: [S, n]."""
    instance = np.arange(len(problem.reward))[:, None]
    state = np.arange(problem.states)
    value = np.zeros((len(policy), problem.states))
    for h in reversed(range(problem.horizon)):
        chosen = policy[:, h]
        step = problem.transition[instance, state, chosen]  # [S, n, n]
        value = problem.reward[instance, state, chosen] + np.matmul(step, value[:, :, None])[:, :, 0]
    return value


def play(problem: Problem, policy: Integers, streams: Streams) -> Episode:
    """One episode of each seed under its policy [S, H, n]."""
    seed, instance = np.arange(len(policy)), np.arange(len(problem.reward))
    draws = streams.uniform(problem.horizon + 1)
    states = np.empty((len(policy), problem.horizon + 1), np.int64)
    actions = np.empty((len(policy), problem.horizon), np.int64)
    rewards = np.empty(actions.shape)
    states[:, 0] = _choose(problem.start, draws[:, 0])
    for h in range(problem.horizon):
        s = states[:, h]
        actions[:, h] = a = policy[seed, h, s]
        rewards[:, h] = problem.reward[instance, s, a]
        states[:, h + 1] = _choose(problem.transition[instance, s, a], draws[:, h + 1])
    return Episode(states, actions, rewards)


def _choose(probabilities: Array, draws: Array) -> Integers:
    """An index from each row of [I, n], by inversion of a uniform draw [S]."""
    cumulative = probabilities.cumsum(-1)
    return np.asarray((draws[:, None] * cumulative[:, -1:] >= cumulative).sum(-1))


def regret(
    problem: Problem,
    agent: Agent,
    episodes: int,
    seeds: Sequence[int],
    progress: Callable[[int], None] | None = None,
) -> Array:
    """V*_1(s_1^m) − V_1^{π_m}(s_1^m) of each episode m, exactly: [S, M].

    π_m is greedy in Q^m and fixed for the whole episode, so dynamic programming gives its exact value.
    """
    streams, best = Streams(seeds, "environment"), optimal(problem)[:, 0].max(-1)
    seed, instance = np.arange(len(seeds)), np.arange(len(best))
    lost = np.empty((len(seeds), episodes))
    for m in range(episodes):
        policy = agent.q().argmax(-1)
        episode = play(problem, policy, streams)
        first = episode.states[:, 0]
        lost[:, m] = best[instance, first] - evaluate(problem, policy)[seed, first]
        agent.update(episode)
        if progress:
            progress(m + 1)
    return lost
