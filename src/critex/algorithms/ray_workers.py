"""Workers of IMPALA as Ray actors, on this machine or on a cluster.

Each worker is always collecting one unroll. The learner takes the first that is ready, updates, and sends that worker the
new weights with the request for its next one. So the policy lag of an unroll is the number of unrolls that the others
delivered in the meantime. When a worker dies, its unroll is lost, and a new worker with its own levels replaces it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from critex.bonus import Gram, WelfordScaler
from critex.console import notice
from critex.data import derive_seed
from critex.errors import UserError
from critex.explorers import Explorer
from critex.run import to_dict
from critex.run.cluster import connect
from critex.run.seeding import limit_threads

if TYPE_CHECKING:
    from critex.algorithms.impala import IMPALA, Config, Unroll, Worker

PATIENCE = 600.0
"""Seconds without an unroll from any worker after which the run gives up."""

Gain = dict[str, Any]
"""New observations of an explorer's lifelong memories: Σφφᵀ [M, d, d] of each Gram matrix, (μ, ν², N) of each scaler."""


class SharedMemory:
    """The parts of an explorer's memory that outlive an episode; all workers share them.

    An episodic memory stays with its worker. So do lifelong visit counts: each worker counts for itself.
    """

    def __init__(self, explorer: Explorer) -> None:
        lifelong = [
            (name, m) for name, m in explorer.named_modules() if isinstance(m, Explorer) and not m.episodic
        ]
        self.grams: dict[str, Gram] = {
            f"{name}.{child}": m
            for name, part in lifelong
            for child, m in part.named_children()
            if isinstance(m, Gram)
        }
        self.scalers: dict[str, WelfordScaler] = {
            name: m for name, m in explorer.named_modules() if isinstance(m, WelfordScaler)
        }
        self._before = {name: list(scaler.moments) for name, scaler in self.scalers.items()}

    def gain(self) -> Gain:
        """The observations of this worker since the last call."""
        gained: Gain = {name: gram.increment() for name, gram in self.grams.items()}
        for name, scaler in self.scalers.items():
            gained[name] = difference(scaler.moments, self._before[name])
            self._before[name] = list(scaler.moments)
        return gained

    def merge(self, gain: Gain) -> None:
        """Add the observations of other workers; they do not count towards our own gain."""
        for name, gram in self.grams.items():
            gram.merge(gain[name])
        for name, scaler in self.scalers.items():
            scaler.moments[:] = joined(scaler.moments, gain[name])
            self._before[name] = joined(self._before[name], gain[name])

    def added(self, old: Gain, gain: Gain) -> Gain:
        """Two gains as one."""
        grams = {name: old[name] + gain[name] for name in self.grams}
        return {**grams, **{name: joined(old[name], gain[name]) for name in self.scalers}}

    def everything(self) -> Gain:
        """The whole shared memory, for a new worker."""
        eye = {name: gram.ridge * torch.eye(gram.dim, dtype=gram.dtype) for name, gram in self.grams.items()}
        grams = {name: gram.matrix() - eye[name] for name, gram in self.grams.items()}
        return {**grams, **{name: list(scaler.moments) for name, scaler in self.scalers.items()}}


def joined(a: list[float], b: list[float]) -> list[float]:
    """The moments (μ, ν², N) of two samples together: μ_a + δN_b/N, ν²_a + ν²_b + δ²N_aN_b/N with δ = μ_b − μ_a."""
    (mean, squares, count), (other_mean, other_squares, other_count) = a, b
    n, delta = count + other_count, other_mean - mean
    if not n:
        return [0.0, 0.0, 0.0]
    return [mean + delta * other_count / n, squares + other_squares + delta**2 * count * other_count / n, n]


def difference(whole: list[float], part: list[float]) -> list[float]:
    """The moments of the samples in `whole` but not in `part`: the inverse of `joined`."""
    (mean, squares, count), (part_mean, part_squares, part_count) = whole, part
    n = count - part_count
    if not n:
        return [0.0, 0.0, 0.0]
    rest = (count * mean - part_count * part_mean) / n
    return [rest, max(squares - part_squares - (rest - part_mean) ** 2 * part_count * n / count, 0.0), n]


class RemoteWorker:
    """The worker inside a Ray actor; its weights arrive with each request."""

    def __init__(self, options: dict[str, Any], number: int) -> None:
        from critex.algorithms import load_config
        from critex.algorithms.impala import make_worker

        limit_threads(1)
        # The options come from the learner, which has checked them.
        cfg = load_config("impala", options, allow_import=True)
        seed = derive_seed(cfg.seed, "worker", number)
        torch.manual_seed(seed)
        self.worker: Worker = make_worker(replace(cfg, seed=seed), torch.device("cpu"))
        self.memory = SharedMemory(self.worker.agent.explorer)
        self._warnings: dict[str, str] = {}
        for name, part in self.worker.agent.explorer.named_modules():
            if isinstance(part, Explorer):
                part.report = partial(self._keep, name)

    def _keep(self, part: str, kind: str, warning: str) -> None:
        """Keep a warning for the learner: nobody reads what this process prints."""
        self._warnings[f"{part}.{kind}"] = warning

    def collect(self, weights: dict[str, Any], news: Gain | None) -> tuple[Unroll, Gain]:
        """One unroll with these weights, and its gain for the shared memory; `news` is the gain of the other workers."""
        agent = self.worker.agent
        agent.network.load_state_dict(weights["network"])
        agent.explorer.load_state_dict(weights["explorer"], strict=False)
        agent.updates = weights["updates"]
        if news:
            self.memory.merge(news)
        unroll = self.worker.collect()
        return unroll, self.memory.gain()

    def metrics(self) -> tuple[dict[str, float], dict[str, str]]:
        """The metrics of this worker's explorer since the last call, and its new warnings by kind."""
        metrics = self.worker.metrics()
        warnings, self._warnings = self._warnings, {}
        return metrics, warnings

    def card(self) -> dict[str, Any]:
        """The cost card of this worker's explorer."""
        return self.worker.card()


@dataclass(eq=False)
class Slot:
    """The place of one worker."""

    index: int
    actor: Any
    news: Gain | None = None  # gain of the others since its last request


class RayWorkers:
    """`cfg.workers` workers as Ray actors; `collect` returns the first unroll that is ready.

    Its state in a checkpoint has the number of workers ever started, so that a resumed run continues with new levels.
    Unrolls in progress are lost: a run with workers resumes from its learner's checkpoint, but not bit for bit.
    """

    def __init__(self, cfg: Config, agent: IMPALA) -> None:
        self.cfg, self.agent = cfg, agent
        self.memory = SharedMemory(agent.explorer)
        self.started = 0  # workers so far, including those that died
        self._warned: list[str] = []  # kinds of warnings that were printed
        self._slots: list[Slot] = []
        self._idle: list[Slot] = []
        self._running: dict[Any, Slot] = {}
        self._ray, self._own = connect(cfg.ray_address, max(cfg.workers, os.cpu_count() or 1))
        self._actor = self._ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(RemoteWorker)

    def collect(self) -> Unroll:
        """Send requests to idle workers, and wait for an unroll."""
        began = time.perf_counter()
        if not self._slots:
            self._slots = [Slot(i, None) for i in range(self.cfg.workers)]
            for slot in self._slots:
                self._start(slot)
        self._order()
        while True:
            # Workers that die again and again do not prolong it.
            left = began + PATIENCE - time.perf_counter()
            ready, _ = self._ray.wait(list(self._running), timeout=max(left, 0.0))
            if not ready:
                raise UserError(
                    f"no worker delivered an unroll in {PATIENCE:.0f} s; does the cluster have a CPU for each? "
                    f"It has {self._ray.cluster_resources().get('CPU', 0):.0f}"
                )
            slot = self._running.pop(ready[0])
            try:
                unroll, gain = self._ray.get(ready[0])
            except self._ray.exceptions.RayTaskError as error:  # a bug, which a new worker would repeat
                raise error.cause from None
            except self._ray.exceptions.RayError as error:
                if getattr(error, "actor_init_failed", False):
                    raise UserError(f"a worker did not start: {_last_line(error)}") from error
                notice(f"worker {slot.index} died ({type(error).__name__}); another one takes its place")
                self._ray.kill(slot.actor)  # it may only be unreachable, and would then keep its CPU
                self._start(slot)
                self._order()
                continue
            self._idle.append(slot)
            self._share(slot, gain)
            first = slot.index * self.cfg.num_envs
            unroll.episodes = [replace(episode, env=first + episode.env) for episode in unroll.episodes]
            result: Unroll = unroll
            return result

    def _start(self, slot: Slot) -> None:
        slot.actor = self._actor.remote(to_dict(self.cfg), self.started)
        slot.news = self.memory.everything()
        self.started += 1
        self._idle.append(slot)

    def _order(self) -> None:
        """Send the current weights and the news to every idle worker."""
        if self._idle:
            weights = self._ray.put(self._weights())
            for slot in self._idle:
                self._running[slot.actor.collect.remote(weights, slot.news)] = slot
                slot.news = None
            self._idle = []

    def _weights(self) -> dict[str, Any]:
        def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.detach().cpu() for name, tensor in tensors.items()}

        explorer = copied(dict(self.agent.explorer.named_parameters()))
        network = copied(self.agent.network.state_dict())
        return {"network": network, "explorer": explorer, "updates": self.agent.updates}

    def _share(self, source: Slot, gain: Gain) -> None:
        if gain:
            self.memory.merge(gain)
            for slot in self._slots:
                if slot is not source:  # one sum, however long a worker takes to ask for it
                    slot.news = self.memory.added(slot.news, gain) if slot.news else gain

    def _warn_once(self, warnings: dict[str, str]) -> None:
        """Print warnings of the workers' explorers, each kind once, whichever worker finds it first."""
        for kind, warning in warnings.items():
            if kind not in self._warned:
                self._warned.append(kind)
                notice(warning)

    def metrics(self) -> dict[str, float]:
        """Those of the worker that delivered the last unroll: it is idle until the next `collect`."""
        try:
            metrics, warnings = self._ray.get(self._idle[-1].actor.metrics.remote(), timeout=PATIENCE)
        except self._ray.exceptions.RayTaskError as error:  # a bug
            raise error.cause from None
        except self._ray.exceptions.RayError:  # it died; the next `collect` replaces it
            return {}
        self._warn_once(warnings)
        found: dict[str, float] = metrics
        return found

    def card(self) -> dict[str, Any]:
        """The card of the worker that answers first; a worker waiting for a CPU would never answer."""
        asked = [slot.actor.card.remote() for slot in self._slots]
        while asked:
            ready, asked = self._ray.wait(asked, timeout=PATIENCE)
            if not ready:
                break
            with contextlib.suppress(self._ray.exceptions.RayError):
                card: dict[str, Any] = self._ray.get(ready[0])
                return card
        return {}

    def close(self) -> None:
        """Stop the workers, and Ray if it was started here."""
        for slot in self._slots:
            self._ray.kill(slot.actor)
        self._slots, self._running, self._idle = [], {}, []
        if self._own:
            self._ray.shutdown()

    def state_dict(self) -> dict[str, Any]:
        """How many workers were ever started, and which warnings were printed."""
        return {"started": self.started, "warned": list(self._warned)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the numbering of workers."""
        self.started = state["started"]
        self._warned = list(state["warned"])


def _last_line(error: Exception) -> str:
    """The error itself, without Ray's account of where it was raised."""
    return str(error).strip().splitlines()[-1].removeprefix("critex.errors.UserError: ")
