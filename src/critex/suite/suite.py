"""A suite: tasks × methods × seeds, and the runs they define."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from critex.errors import UserError, unknown
from critex.presets import default_config
from critex.suite.jobs import Job

# Suite runs log to metrics.jsonl only. They checkpoint by time, since a step may take microseconds or milliseconds.
ALWAYS = "--no-tensorboard --checkpoint-every 0 --checkpoint-minutes 5"


@dataclass(frozen=True)
class Task:
    """A row of the table."""

    env: str
    steps: int | None = None
    """Environment steps at budget 1; None: the preset's."""
    flags: str = ""
    """Options of `critex train` that every method gets on this task."""

    @property
    def name(self) -> str:
        return self.env.partition("?")[0]


@dataclass(frozen=True)
class Method:
    """A column of the table: `sac`, `sac+cae`, `sac+cae-unscaled`."""

    algorithm: str
    explorer: str = "none"
    variant: str = ""
    """Distinguishes methods with the same explorer."""
    flags: str = ""
    tasks: tuple[str, ...] = ()
    """The tasks it runs on; empty: all."""

    @property
    def name(self) -> str:
        name = self.algorithm if self.explorer == "none" else f"{self.algorithm}+{self.explorer}"
        return f"{name}-{self.variant}" if self.variant else name

    @property
    def base(self) -> str | None:
        """Its baseline: the algorithm alone."""
        return None if self.name == self.algorithm else self.algorithm


@dataclass(frozen=True)
class Suite:
    """The runs behind one table, as a few constants."""

    name: str
    title: str
    tasks: tuple[Task, ...]
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    preset: str | None = None
    flags: str = ""
    """Options of `critex train` that every run gets."""
    paper: str | None = None
    """The table of the paper to compare with (see `critex.tables.paper`)."""
    score: Literal["episodes", "evaluations"] = "episodes"
    """The source of the final score: the last training episodes, or the last evaluations."""
    measure: str = "return"
    """The averaged quantity: the extrinsic return, or a measure of the environment such as `coverage`."""
    beside: str | None = None
    """A table of the paper for the same question in another setting, quoted below ours."""
    version: int = 1
    """Increased when a change of the constants makes earlier runs incomparable."""

    def cells(self, only: Collection[str] = (), tasks: Collection[str] = ()) -> Iterator[tuple[Task, Method]]:
        """Every (task, method) to run, restricted to the methods `only` and to `tasks`; empty means all.

        `sac` means all methods of SAC, `sac+cae` that one, `sac+none` SAC alone. An unknown name is a `UserError`.
        """
        names = {method.name if method.base else f"{method.name}+none": method for method in self.methods}
        algorithms = {method.algorithm for method in self.methods}
        for word in only:
            if word not in names and word not in algorithms:
                raise unknown(f"method of {self.name}", word, [*names, *algorithms])
        for word in tasks:
            if word not in (known := [task.name for task in self.tasks]):
                raise unknown(f"task of {self.name}", word, known)
        for task in self.tasks:
            for word, method in names.items():
                if (
                    (not only or word in only or method.algorithm in only)
                    and (not tasks or task.name in tasks)
                    and (not method.tasks or task.name in method.tasks)
                ):
                    yield task, method

    def steps(self, task: Task, method: Method, budget: float = 1.0) -> int:
        """Environment steps of a run: the task's, or else the preset's, times the budget."""
        steps = task.steps
        if steps is None:
            steps = int(default_config(method.algorithm, method.explorer, self.preset, task.env).steps)
        return max(round(budget * steps), 1)

    def arguments(self, task: Task, method: Method) -> tuple[str, ...]:
        """Arguments of `critex train` that all seeds and budgets share."""
        flags = " ".join((self.flags, task.flags, method.flags))
        preset = ("--preset", self.preset) if self.preset else ()
        return (method.algorithm, "--env", task.env, *preset, "--explorer", method.explorer, *flags.split())

    def jobs(
        self,
        out: Path,
        budget: float = 1.0,
        only: Collection[str] = (),
        tasks: Collection[str] = (),
        seeds: Sequence[int] = (),
    ) -> list[Job]:
        """The runs in `out`/<task>/<method>/seed-<n>; every cell gets its first seed before any gets its second."""
        cells = list(self.cells(only, tasks))
        if not cells:
            raise UserError(f"{self.name} has no run of {', '.join(only)} on {', '.join(tasks)}")
        jobs = []
        for seed in seeds or self.seeds:
            for task, method in cells:
                label = f"{task.name}/{method.name}/seed-{seed}"
                steps = self.steps(task, method, budget)
                flags = (*ALWAYS.split(), "--steps", str(steps), "--seed", str(seed))
                jobs.append(Job(label, out / label, (*self.arguments(task, method), *flags), steps))
        return jobs
