"""A run: its directory, its loop, its checkpoints, and how it ends and goes on."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from critex.data import Transition, derive_seed
from critex.errors import UserError
from critex.run.checkpoint import KEPT, Checkpoints, ChunkedPart, Damaged, Part, without_tensors
from critex.run.config import RunConfig, check, to_dict
from critex.run.evaluation import EpisodeLike, MakeEnvs, Policy, evaluate
from critex.run.files import LOCK, Lock, atomic_write, disk_errors, notice, sync_directory
from critex.run.interrupt import Interrupted, StopSignals
from critex.run.logbook import Logbook, next_multiple
from critex.run.metrics import METRICS
from critex.run.progress import Display, Silent, make_display
from critex.run.record import CARD, CONFIG, require_free, require_run, write_card, write_config
from critex.run.seeding import (
    choose_device,
    limit_threads,
    preserved_rng,
    rng_state,
    seed_everything,
    set_rng_state,
)
from critex.run.visits import VISITS, Visits

TICK = 0.5
"""Seconds between two looks at what goes by the clock: lines to the file, the display, timed checkpoints."""


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

    `step` is the number of environment steps taken; inside the loop it counts those of the running iteration,
    so a metrics line carries the number of steps that led to it.
    """

    def __init__(self, path: Path, config: Any, *, resume: bool):
        """Use `create` or `open`."""
        self.path, self.step, self._resume = path, 0, resume
        self.options = options = run_options(config)
        self.device = choose_device(options.device)
        self._config = to_dict(config)
        self._hint = f", then go on from the last checkpoint with: critex resume {path}"
        self._lock = Lock(path)
        self._log = Logbook(path, options, self._hint)
        self._checkpoints = Checkpoints(path)
        self._parts: dict[str, Part] = {}
        self._kept: dict[int, dict[str, Any]] = {}  # states of the chunked parts by step, without tensors
        self._rng: dict[str, Any] | None = None  # to be restored when the loop begins
        self._signals = StopSignals()
        self._display: Display = Silent()
        self._visits = Visits()
        self._begun = self._solved = False  # the loop has; an evaluation reached stop_return
        self._next_eval = options.eval_every or sys.maxsize
        self._next_checkpoint = options.checkpoint_every or sys.maxsize
        self._next_tick = 0.0
        self._saved_at = time.perf_counter()
        self._shown = (0, self._saved_at)  # where the display began to measure the speed
        if options.threads:
            limit_threads(options.threads)
        seed_everything(derive_seed(options.seed, "global"))

    # Beginning and end --------------------------------------------------------------------------------------

    @classmethod
    def create(cls, algorithm: str, config: Any) -> Self:
        """A new run in the directory `out` of its options, which must not exist yet, or be empty.

        `config` is a dataclass that inherits from `RunConfig` or has one as its field `run`. The global
        generators of Python, NumPy and torch are seeded here, so build the agent afterwards.
        """
        options = run_options(config)
        choose_device(options.device)  # complain before anything is written
        path = Path(options.out or f"runs/{algorithm}-{time.strftime('%Y%m%d-%H%M%S')}")
        require_free(path)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            run = cls(path, config, resume=False)
            try:
                require_free(path)  # the lock is ours now: nobody can come between
                write_config(path, algorithm, run._config)
            except BaseException:
                run.close()
                raise
        return run

    @classmethod
    def open(cls, path: Path | str, config: Any) -> Self:
        """Go on with the run in `path`; `config` is what `from_dict` makes of `read_config(path)`."""
        path = Path(path)
        require_run(path)
        if (path / CARD).exists():
            raise UserError(f"{path} is finished: nothing to resume; play it with: critex eval {path}")
        with disk_errors(path):
            return cls(path, config, resume=True)

    def attach(self, **parts: Part) -> None:
        """Name everything that has a state; when resuming, each gets it back, as do the global generators.

        A part has `state_dict` and `load_state_dict`, in plain values and tensors; a large one also has
        chunks (see `ChunkedPart`), in checkpoints/<name>. Call it once, before the loop.
        """
        if self._parts:
            raise RuntimeError("attach was called before; name all parts in one call")
        self._parts = parts
        # Killed before its first checkpoint, a run has done nothing yet and simply begins.
        begun = self._checkpoints.files() or self._log.file.sync()
        if not self._resume or not begun:
            return
        for path, state in self._checkpoints.valid():
            try:
                self._restore(state)
            except Damaged as damage:
                notice(f"{path} cannot be used: {damage}; trying the one before it")
                continue
            with disk_errors(path):
                self._checkpoints.clean(path)
            notice(f"{self.path}: going on at step {self.step}")
            return
        raise self._checkpoints.none_valid()

    def finish(self, card: Mapping[str, Any] | None = None) -> None:
        """Write the last checkpoint, then card.json: `card` and the totals; that ends the run."""
        self._show(time.perf_counter())
        self.checkpoint()
        with disk_errors(self.path, self._hint):
            if table := self._visits.table(self.step):
                atomic_write(self.path / VISITS, json.dumps(table).encode())
            write_card(self.path, card or {}, self.step, self._log.seconds(), str(self.device))
        self.close()

    def close(self) -> None:
        """Let go of files, display, signals and the lock; nothing is checkpointed here."""
        self._signals.release()
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
        with contextlib.suppress(*([UserError] if error else [])):  # the first error is the one to report
            self.close()
        if (
            error and not self._resume and not self._begun
        ):  # refused: leave nothing in the way of the next try
            for name in (CONFIG, METRICS, LOCK):
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.rmdir()

    # The loop -----------------------------------------------------------------------------------------------

    def steps(self, total: int, per_iteration: int = 1) -> Iterator[int]:
        """Yield the number of environment steps taken before each iteration, until `total` are reached.

        Between iterations, and only there, the run checkpoints itself, and stops where Ctrl-C asked for it.

        The contract that makes a resumed run exact: what an iteration does may depend on the attached parts,
        the step, the config and the global generators, and on nothing else. A local variable that lives from
        one iteration to the next (a moving average, a count of updates, the current observation) must be in
        the state of an attached part, or be computed from it before the loop, as in `obs = envs.obs`.
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
        with preserved_rng():  # a mirror may draw what it likes
            self._log.open_mirrors(self._config, self.step)
        if self._rng is None:
            self.checkpoint()
        else:
            set_rng_state(self._rng)  # once more, for what was drawn since attach
            self._rng = None
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
            message = f"stopped at step {self.step}; go on with: critex resume {self.path}"
            raise Interrupted(message, self._signals.caught)

    def _show(self, now: float) -> None:
        step, since = self._shown
        if now > since:
            speed = (self.step - step) / (now - since)
            self._display.update(self.step, speed, self._log.mean_return(), self._log.bonus)
            if now - since > 10:  # so the speed shown is a recent one
                self._shown = (self.step, now)

    # What the loop reports ----------------------------------------------------------------------------------

    def episodes(self, episodes: Iterable[EpisodeLike]) -> None:
        """One metrics line for each finished episode: extrinsic return, length, env."""
        self._log.episodes(self.step, episodes)

    def due(self) -> bool:
        """Whether `log_every` steps have passed; it stays so until `log` is called."""
        return self._log.due(self.step)

    def log(self, values: Mapping[str, Any]) -> None:
        """One line of training metrics: numbers or 0-dim tensors by name. The display shows `bonus`."""
        self._log.train(self.step, values)

    def evaluate(self, policy: Policy, make_envs: MakeEnvs) -> None:
        """When `eval_every` steps have passed: play `eval_episodes` episodes in fresh envs, log the returns.

        `make_envs(num_envs, seed=…)` builds the envs, as `functools.partial(Envs, cfg.env)` does. Their seeds
        come from the run's seed and the step; the global generators of training are not touched.
        """
        if self.step >= self._next_eval:
            self._next_eval = next_multiple(self.step, self.options.eval_every)
            seed = derive_seed(self.options.seed, "evaluation", self.step)
            result = evaluate(policy, make_envs, self.options.eval_episodes, seed)
            self._log.write("eval", self.step, result)
            goal = self.options.stop_return
            self._solved = goal is not None and result["return"] >= goal

    def visits(self, step: Transition) -> None:
        """Count the cells that the envs are in, where they report a position; visits.json keeps the counts.

        One vector step [N], or a whole rollout [T, N] at once.
        """
        position = step.info.get("position")
        if position is not None:
            self._visits.add(position.flatten(0, step.reward.ndim - 1), self.step)

    # Checkpoints --------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write the state of everything: chunks, then metrics, then the one file that refers to both."""
        directory = self._checkpoints.directory
        chunked = {name: part for name, part in self._parts.items() if isinstance(part, ChunkedPart)}
        with disk_errors(directory, self._hint if self._checkpoints.files() else ""):
            for name, part in chunked.items():
                (directory / name).mkdir(parents=True, exist_ok=True)
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
            "step": self.step,
            "next_eval": self._next_eval,
            "next_checkpoint": self._next_checkpoint,
        }
        run |= {"solved": self._solved, "visits": self._visits.state_dict()}
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        return {"run": run, "log": self._log.state_dict(), "parts": parts, "rng": rng_state()}

    def _restore(self, state: dict[str, Any]) -> None:
        stored = state["parts"]
        if stored.keys() != self._parts.keys():
            raise UserError(
                f"the checkpoint of {self.path} holds {', '.join(stored)} where {', '.join(self._parts)} are "
                "needed: it comes from another version of critex"
            )
        for name, part in self._parts.items():
            try:
                part.load_state_dict(stored[name])
            except (RuntimeError, ValueError, KeyError) as error:
                reason = " ".join(str(error).split())
                raise UserError(
                    f"the checkpoint of {self.path} does not fit its config: {name}: {reason}"
                ) from error
            if isinstance(part, ChunkedPart):
                try:
                    part.load_chunks(self._checkpoints.directory / name)
                except (UserError, OSError) as error:
                    raise Damaged(f"{name}: {error}") from error
        self._log.load_state_dict(state["log"])
        self.step, self._next_eval = state["run"]["step"], state["run"]["next_eval"]
        self._next_checkpoint, self._solved = state["run"]["next_checkpoint"], state["run"]["solved"]
        self._visits.load_state_dict(state["run"]["visits"])
        self._remember(stored)
        self._rng = state["rng"]
        set_rng_state(state["rng"])

    def _remember(self, parts: Mapping[str, Any]) -> None:
        """Keep for `prune_chunks` what the checkpoints on disk refer to."""
        names = [name for name, part in self._parts.items() if isinstance(part, ChunkedPart)]
        self._kept[self.step] = {name: without_tensors(parts[name]) for name in names}
        for old in sorted(self._kept)[:-KEPT]:
            del self._kept[old]


def run_options(config: Any) -> RunConfig:
    """The `RunConfig` in a config: the config itself, or its field `run`."""
    options = config if isinstance(config, RunConfig) else getattr(config, "run", None)
    if not isinstance(options, RunConfig):
        raise TypeError(f"{type(config).__name__} neither is a RunConfig nor has one as its field `run`")
    check(options)
    return options
