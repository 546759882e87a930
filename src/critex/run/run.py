"""A run: its directory, its loop, its checkpoints, and how it stops and resumes."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any, Self

from critex.console import lost_output, notice, open_standard_streams
from critex.data import Episode, Transition, derive_seed
from critex.data.files import Damaged, atomic_write, own_directory, refuse_link, sync_directory
from critex.errors import UserError
from critex.ranges import check_ranges
from critex.run.checkpoint import (
    CHECKPOINTS,
    KEPT,
    Checkpoints,
    ChunkedPart,
    Part,
    load_part,
    without_tensors,
)
from critex.run.config import RunConfig, to_dict
from critex.run.evaluation import MakeEnvs, Policy, evaluate
from critex.run.files import LOCK, Lock, disk_errors
from critex.run.interrupt import Interrupted, StopSignals
from critex.run.logger import Logger, next_multiple
from critex.run.metrics import METRICS
from critex.run.progress import Display, Silent, make_display
from critex.run.record import (
    CARD,
    CONFIG,
    read_run_id,
    require_free,
    require_run,
    write_card,
    write_config,
)
from critex.run.seeding import (
    choose_device,
    limit_threads,
    preserved_rng,
    rng_state,
    seed_everything,
    set_rng_state,
)
from critex.run.sinks import TENSORBOARD
from critex.run.visits import VISITS, Visits

TICK = 0.5
"""Seconds between two checks of everything timed: flushing metrics, the display, timed checkpoints."""


class Run:
    """One training run in one directory.

        with Run.create("dqn", cfg) as run:                  # or Run.open("runs/a", cfg)
            run.attach(agent=agent, replay=replay, envs=envs)
            for step in run.steps(cfg.steps, cfg.num_envs):
                ...
                run.episodes(envs.pop_episodes())
                if run.due():
                    run.log({"loss": loss})
                run.evaluate(agent.greedy, make_envs)
            run.finish({"parameters": 1234})

    `step` is the number of environment steps taken. Inside the loop it includes those of the current iteration,
    so a metrics line carries the number of steps that led to it.
    """

    def __init__(self, path: Path, config: RunConfig, run_id: str, *, resume: bool):
        """Use `create` or `open`."""
        open_standard_streams()
        self.path, self.step, self._id, self._resume = path, 0, run_id, resume
        self.options = options = config
        self.device = choose_device(options.device)
        self._config = to_dict(config)
        self._command = f"critex resume {quote(str(path))}"
        self._hint = f", then continue from the last checkpoint with: {self._command}"
        self._lock = Lock(path)
        self._log = Logger(path, options, run_id, self._hint)
        self._checkpoints = Checkpoints(path)
        self._parts: dict[str, Part] = {}
        self._kept: dict[int, dict[str, Any]] = {}  # states of the chunked parts by step, without tensors
        self._rng: dict[str, Any] | None = None  # to be restored when the loop begins
        self._signals = StopSignals()
        self._display: Display = Silent()
        self._visits = Visits()
        self._begun = False  # the loop has started
        self._solved = False  # an evaluation reached stop_return
        self._next_eval = options.eval_every or sys.maxsize
        self._next_checkpoint = options.checkpoint_every or sys.maxsize
        self._next_tick = 0.0
        self._saved_at = time.perf_counter()
        self._shown = (0, self._saved_at)  # step and time from which the display measures the speed
        if options.threads:
            limit_threads(options.threads)
        seed_everything(derive_seed(options.seed, "global"))

    # Start and end ------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, algorithm: str, config: RunConfig) -> Self:
        """A new run in the directory `out` of its config, which must not exist yet, or be empty.

        The global generators of Python, NumPy and torch are seeded here, so build the agent afterwards.
        """
        check_ranges(config)  # an option may have been changed since the config was made
        choose_device(config.device)  # an error here comes before anything is written
        path = Path(config.out or f"runs/{algorithm}-{time.strftime('%Y%m%d-%H%M%S')}")
        if not str(path).isprintable():
            raise UserError(f"{path} holds characters that cannot be printed; choose another --out")
        with disk_errors(path):
            require_free(path)
            path.mkdir(parents=True, exist_ok=True)
            run = cls(path, config, uuid.uuid4().hex, resume=False)
            try:
                require_free(path)  # again: the lock is held now, so no other process can interfere
                write_config(path, algorithm, run._config, run._id)
            except BaseException:
                run.close()
                raise
        return run

    @classmethod
    def open(cls, path: Path | str, config: RunConfig) -> Self:
        """Resume the run in `path`; `config` comes from `from_dict` and `read_config(path)`."""
        path = Path(path)
        require_run(path)
        if (path / CARD).exists():
            raise UserError(
                f"{path} is finished: nothing to resume; play it with: critex eval {quote(str(path))}"
            )
        for name in (CHECKPOINTS, TENSORBOARD, "wandb"):
            refuse_link(path / name)
        with disk_errors(path):
            return cls(path, config, read_run_id(path), resume=True)

    def attach(self, **parts: Part) -> None:
        """Register everything that has a state; a resumed run restores it here, with the global generators.

        A part has `state_dict` and `load_state_dict`, in plain values and tensors; a large one also has
        chunks (see `ChunkedPart`), in checkpoints/<name>. Call it once, before the loop.
        """
        if self._parts:
            raise RuntimeError("attach was called before; name all parts in one call")
        self._parts = parts
        # A run killed before its first checkpoint has done nothing yet and starts from the beginning.
        begun = self._checkpoints.files() or self._log.file.sync()
        if not self._resume or not begun:
            return
        reason: Damaged | None = None
        for path, state in self._checkpoints.valid():
            if reason:
                notice(f"{reason}; trying the previous one")
            try:
                self._restore(state)
            except Damaged as damage:
                reason = Damaged(f"{path} cannot be used: {damage}")
                continue
            with disk_errors(path):
                self._checkpoints.clean(path)
            notice(f"{self.path}: resumed at step {self.step}")
            return
        raise self._checkpoints.none_valid(reason or "")

    def finish(self, card: Mapping[str, Any] | None = None) -> None:
        """Write the last checkpoint, then card.json with `card` and the totals: the run is complete."""
        self._show(time.perf_counter())
        self.checkpoint()
        with disk_errors(self.path, self._hint):
            if table := self._visits.table(self.step):
                atomic_write(self.path / VISITS, json.dumps(table).encode())
            write_card(self.path, card or {}, self.step, self._log.seconds(), str(self.device))
        self.close()

    def close(self) -> None:
        """Release files, display, signals and the lock; this writes no checkpoint."""
        self._signals.release()
        with lost_output():
            self._display.close()
        self._display = Silent()
        try:
            self._log.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(*([UserError] if error else [])):  # report the first error
            self.close()
        # The run never started: leave nothing that would block the next try.
        if error and not self._resume and not self._begun:
            for name in (CONFIG, METRICS, LOCK):
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.rmdir()
        if isinstance(error, SystemExit) and not error.code and not (self.path / CARD).exists():
            # A library that calls sys.exit() must not make an unfinished run look like a success.
            raise UserError(
                f"something called sys.exit() at step {self.step}; resume with: {self._command}"
            ) from error

    # The loop -----------------------------------------------------------------------------------------------

    def steps(self, total: int, per_iteration: int = 1) -> Iterator[int]:
        """Yield the number of environment steps taken before each iteration, until `total` is reached.

        Checkpoints are written, and Ctrl-C takes effect, between iterations only.

        Resuming is exact if an iteration depends only on the attached parts, the step, the config and the global
        generators. A local variable that outlives an iteration (a moving average, a count of updates, the current
        observation) must be part of the state of an attached part, or be computed from it before the loop, as in
        `obs = envs.obs`.
        """
        self._begin(total)
        signals, clock = self._signals, time.perf_counter
        try:
            while self.step < total and not self._solved:
                before = self.step
                self.step = before + per_iteration
                yield before
                if signals.caught or self.step >= self._next_checkpoint or clock() >= self._next_tick:
                    self._between()
        finally:
            signals.release()

    def _begin(self, total: int) -> None:
        self._begun = True
        self._visits.begin(total, self.step)
        with preserved_rng():  # a sink may use the global generators
            self._log.open_sinks(self._config, self.step)
        if self._rng is None:
            self.checkpoint()
        else:
            set_rng_state(self._rng)  # again: the generators may have been used since attach
            self._rng = None
        with lost_output():
            self._display = make_display(self.path.name, total, self.step, self.options.progress)
        self._shown = (self.step, time.perf_counter())
        self._signals.catch()

    def _between(self) -> None:
        now = time.perf_counter()
        self._next_tick = now + TICK
        minutes = self.options.checkpoint_minutes
        timed = minutes > 0 and now >= self._saved_at + 60 * minutes
        if timed or self._signals.caught or self.step >= self._next_checkpoint:
            self.checkpoint()
        self._log.file.flush()
        self._show(now)
        if self._signals.caught:
            message = f"stopped at step {self.step}; resume with: {self._command}"
            raise Interrupted(message, self._signals.caught)

    def _show(self, now: float) -> None:
        step, since = self._shown
        if now > since:
            speed = (self.step - step) / (now - since)
            with lost_output():
                self._display.update(self.step, speed, self._log.mean_return(), self._log.bonus)
            if now - since > 10:  # so that the speed shown is a recent one
                self._shown = (self.step, now)

    # Logging and evaluation ---------------------------------------------------------------------------------

    def episodes(self, episodes: Iterable[Episode]) -> None:
        """Log each finished episode: extrinsic return, length, env."""
        self._log.episodes(self.step, episodes)

    def due(self) -> bool:
        """Whether `log_every` steps have passed since the last `log`."""
        return self._log.due(self.step)

    def log(self, values: Mapping[str, Any]) -> None:
        """Log training metrics: numbers or 0-dim tensors by name. The display shows `bonus`."""
        self._log.train(self.step, values)

    def evaluate(self, policy: Policy, make_envs: MakeEnvs) -> None:
        """When `eval_every` steps have passed: play `eval_episodes` episodes in new envs and log the returns.

        `make_envs(num_envs, seed=…)` makes the envs, as `functools.partial(Envs, cfg.env)` does. Their seeds
        come from the run's seed and the step; the global generators are left as they were.
        """
        if self.step >= self._next_eval:
            self._next_eval = next_multiple(self.step, self.options.eval_every)
            seed = derive_seed(self.options.seed, "evaluation", self.step)
            result = evaluate(policy, make_envs, self.options.eval_episodes, seed)
            self._log.write("eval", self.step, result)
            goal = self.options.stop_return
            self._solved = goal is not None and result["return"] >= goal

    def visits(self, step: Transition) -> None:
        """Count the cells that the envs are in, if they report a position; the counts go to visits.json.

        One vector step [N], or a whole rollout [T, N] at once.
        """
        position = step.info.get("position")
        if position is not None:
            self._visits.add(position.flatten(0, step.reward.ndim - 1), self.step)

    # Checkpoints --------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write the state of everything: chunks, then metrics, then the one file that refers to both."""
        if not self._lock.in_place():
            raise UserError(
                f"{self.path} was moved or removed during training; stopped at step {self.step}. If it was moved, "
                "resume it from its new place: critex resume DIR"
            )
        directory = self._checkpoints.directory
        chunked = {name: part for name, part in self._parts.items() if isinstance(part, ChunkedPart)}
        with disk_errors(directory, self._hint if self._checkpoints.files() else ""):
            own_directory(directory)
            for name, part in chunked.items():
                own_directory(directory / name)
                part.save_chunks(directory / name)
                sync_directory(directory / name)
            every = self.options.checkpoint_every
            self._next_checkpoint = next_multiple(self.step, every) if every else sys.maxsize
            state = self._state()
            self._checkpoints.save(self.step, state)
            self._remember(state["parts"])
            for name, part in chunked.items():
                part.prune_chunks(directory / name, [kept[name] for kept in self._kept.values()])
        self._saved_at = time.perf_counter()

    def _state(self) -> dict[str, Any]:
        run: dict[str, Any] = {
            "id": self._id,
            "seed": self.options.seed,
            "step": self.step,
            "next_eval": self._next_eval,
            "next_checkpoint": self._next_checkpoint,
            "solved": self._solved,
            "visits": self._visits.state_dict(),
        }
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        return {"run": run, "log": self._log.state_dict(), "parts": parts, "rng": rng_state()}

    def _restore(self, state: dict[str, Any]) -> None:
        """Restore everything from one checkpoint; any failure is `Damaged`."""
        try:
            stored, run = state["parts"], state["run"]
            if run["seed"] != self.options.seed:
                raise Damaged(f"it was made with seed {run['seed']}, the config says {self.options.seed}")
            if stored.keys() != self._parts.keys():
                raise Damaged(
                    f"it holds {', '.join(stored)} where {', '.join(self._parts)} are needed: "
                    "it comes from another version of critex"
                )
            for name, part in self._parts.items():
                load_part(name, part, stored, self._checkpoints.directory)
            self.step, self._next_eval = int(run["step"]), int(run["next_eval"])
            self._next_checkpoint, self._solved = int(run["next_checkpoint"]), bool(run["solved"])
            self._visits.load_state_dict(run["visits"])
            self._rng = state["rng"]
            set_rng_state(state["rng"])
            self._remember(stored)
            self._log.load_state_dict(state["log"])  # last: it truncates metrics.jsonl
        except (Damaged, UserError) as error:
            raise Damaged(str(error)) from error
        except Exception as error:
            raise Damaged(f"{type(error).__name__}: {error}") from error

    def _remember(self, parts: Mapping[str, Any]) -> None:
        """Record the chunks that the checkpoints on disk refer to, for `prune_chunks`."""
        names = [name for name, part in self._parts.items() if isinstance(part, ChunkedPart)]
        self._kept[self.step] = {name: without_tensors(parts[name]) for name in names}
        for old in sorted(self._kept)[:-KEPT]:
            del self._kept[old]
