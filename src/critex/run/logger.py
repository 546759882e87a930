"""Logging: the lines of metrics.jsonl, their copies in TensorBoard or Weights & Biases, and when a line is due."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from critex.data import Episode
from critex.errors import UserError
from critex.run.config import RunConfig
from critex.run.metrics import METRICS, MetricsFile, plain_numbers
from critex.run.progress import EPISODES
from critex.run.sinks import Sink, open_sinks


class Logger:
    """Writes every line to metrics.jsonl and to the sinks; keeps the time and the recent returns for the display."""

    def __init__(self, run: Path, options: RunConfig, run_id: str, hint: str):
        self._run, self._options, self._id = run, options, run_id
        self.file = MetricsFile(run / METRICS, hint)
        self._sinks: list[Sink] = []
        self._returns: deque[float] = deque(maxlen=EPISODES)
        self._next_log = options.log_every
        self._logged = (0, 0.0)  # step and time of the last train line
        self._started, self._elapsed = time.perf_counter(), 0.0
        self.bonus = math.nan

    def open_sinks(self, config: dict[str, Any], step: int) -> None:
        """Copy the lines after `step` to the sinks from here on."""
        self._sinks = open_sinks(self._run, self._options, config, self._id, step)

    def seconds(self) -> float:
        """Seconds of training so far, including those before a resume."""
        return self._elapsed + time.perf_counter() - self._started

    def mean_return(self) -> float:
        """Mean extrinsic return of the last hundred episodes."""
        return sum(self._returns) / len(self._returns) if self._returns else math.nan

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Write one line."""
        line = {"kind": kind, "step": step, "time": round(self.seconds(), 3), **values}
        self.file.write(line)
        for sink in self._sinks:
            sink.write(line)

    def episodes(self, step: int, episodes: Iterable[Episode]) -> None:
        """Write one line for each finished episode, at the step that ended it."""
        for episode in episodes:
            value = float(episode.return_)
            self._returns.append(value)
            line = {"return": value, "length": int(episode.length), "env": int(episode.env)}
            self.write("episode", step - episode.ago, line | episode.measures)

    def due(self, step: int) -> bool:
        """Whether the next line of training metrics is due."""
        return step >= self._next_log

    def train(self, step: int, values: Mapping[str, Any]) -> None:
        """Write a line of training metrics: these values, and the speed since the last one.

        A `loss` that is not finite ends the run with a `UserError`.
        """
        numbers = plain_numbers(values)
        self.bonus = float(numbers.get("bonus", self.bonus))
        now, (last, since) = self.seconds(), self._logged
        self._logged = (step, now)
        self._next_log = next_multiple(step, self._options.log_every)
        self.write("train", step, {"sps": round((step - last) / max(now - since, 1e-9), 1), **numbers})
        loss = numbers.get("loss", 0.0)
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is {loss} at step {step}: the networks have diverged; try a smaller learning rate, "
                "and check that observations are finite"
            )

    def state_dict(self) -> dict[str, Any]:
        """The state; when this returns, all lines so far are on the disk."""
        return {
            "bytes": self.file.sync(),
            "seconds": self.seconds(),
            "next_log": self._next_log,
            "logged": self._logged,
            "returns": list(self._returns),
            "bonus": self.bonus,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state and remove later lines from the file."""
        step, seconds = state["logged"]
        self._elapsed, self._started = float(state["seconds"]), time.perf_counter()
        self._next_log, self._logged = int(state["next_log"]), (int(step), float(seconds))
        self._returns = deque(map(float, state["returns"]), maxlen=EPISODES)
        self.bonus = float(state["bonus"])
        self.file.truncate(int(state["bytes"]))  # last: it cannot be undone

    def close(self) -> None:
        """Flush and close file and sinks."""
        try:
            self.file.close()
        finally:
            while self._sinks:
                self._sinks.pop().close()


def next_multiple(step: int, every: int) -> int:
    """The first multiple of `every` after `step`."""
    return (step // every + 1) * every
