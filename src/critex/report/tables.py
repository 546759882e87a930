"""Our scores beside the printed ones, as data: tasks × methods, cell by cell and over all tasks.

A cell that was not run is empty: it is never filled, and it is left out of every mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from critex.report.stats import (
    Estimate,
    Floats,
    Summary,
    Task,
    improvement_probability,
    iqm_rpi,
    mean_rpi,
    rpi,
    stratified,
    summarise,
)

Cell = tuple[str, str]
"""(task, method)."""


@dataclass(frozen=True)
class Score:
    """The final score of one run."""

    seed: int
    value: float
    steps: int
    """Environment steps taken."""
    finished: bool = True


@dataclass(frozen=True)
class Line:
    """One cell: ours and the paper's."""

    task: str
    method: str
    ours: Summary
    unfinished: int
    """Runs among ours that are not finished."""
    paper: tuple[float, float] | None
    rpi: float
    """In percent, over the seeds that method and baseline both have."""
    paper_rpi: float

    @property
    def difference(self) -> float:
        """Our mean − the paper's."""
        return self.ours.mean - self.paper[0] if self.paper else math.nan


@dataclass(frozen=True)
class Comparison:
    """A method against its baseline, over all tasks that both were run on."""

    method: str
    base: str
    tasks: int
    of: int
    """Tasks that both are meant to be run on."""
    pairs: int
    """Seeds that both have, summed over the tasks."""
    rpi: Estimate
    iqm: Estimate
    probability: Estimate
    paper_rpi: float


@dataclass(frozen=True)
class Grid:
    """A table of tasks × methods."""

    title: str
    cells: tuple[Cell, ...]
    """What there is to run, task by task; methods are written `sac+cae`."""
    baseline_of: Mapping[str, str] = field(default_factory=dict)
    """The method that a method is compared with."""
    paper: Mapping[Cell, tuple[float, float]] = field(default_factory=dict)
    """(mean, spread) as printed; a spread of NaN is none."""
    paper_seeds: int = 0
    ours: Mapping[Cell, Sequence[Score]] = field(default_factory=dict)
    budget: float = 1.0
    """Steps of our runs, as a share of those of the full suite."""
    gain: str = "RPI %"
    """Name of 100·(x − base)/|base|."""
    chance: bool = True
    """Whether scores differ from seed to seed, so that comparisons over tasks and seeds tell something."""
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[str]:
        """Tasks."""
        return list(dict.fromkeys(task for task, _ in self.cells))

    @property
    def columns(self) -> list[str]:
        """Methods."""
        return list(dict.fromkeys(method for _, method in self.cells))

    def scores(self, task: str, method: str | None) -> Sequence[Score]:
        """Our runs of one cell."""
        return self.ours.get((task, method or ""), ())

    def pairs(self, task: str, method: str) -> Task | None:
        """The scores of the baseline and of the method on a task, for the seeds that both have."""
        base, ours = (
            {score.seed: score.value for score in self.scores(task, m)}
            for m in (self.baseline_of.get(method), method)
        )
        both = sorted(base.keys() & ours.keys())
        return (np.array([base[s] for s in both]), np.array([ours[s] for s in both])) if both else None

    @cached_property
    def lines(self) -> list[Line]:
        """Every cell, task by task."""
        return [self._line(task, method) for task, method in self.cells]

    def _line(self, task: str, method: str) -> Line:
        scores, pairs = self.scores(task, method), self.pairs(task, method)
        paper, base = (self.paper.get((task, m)) for m in (method, self.baseline_of.get(method, "")))
        return Line(
            task,
            method,
            summarise([score.value for score in scores]),
            unfinished=sum(not score.finished for score in scores),
            paper=paper,
            rpi=float(mean_rpi([pairs])) if pairs else math.nan,
            paper_rpi=rpi(paper[0], base[0]) if paper and base else math.nan,
        )

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Every method that has a baseline, over all tasks; without those of which neither we nor the paper have any."""
        every = [self._comparison(m) for m in self.columns if m in self.baseline_of and self.chance]
        return [c for c in every if c.tasks or not math.isnan(c.paper_rpi)]

    def _comparison(self, method: str) -> Comparison:
        tasks = [pairs for task in self.rows if (pairs := self.pairs(task, method))]
        paper = [line.paper_rpi for line in self.lines if line.method == method and line.paper]

        def over_tasks(statistic: Callable[[Sequence[Task]], Floats]) -> Estimate:
            return stratified(statistic, tasks) if tasks else Estimate(math.nan, math.nan, math.nan)

        return Comparison(
            method,
            self.baseline_of[method],
            tasks=len(tasks),
            of=sum(column == method for _, column in self.cells),
            pairs=sum(ours.size for _, ours in tasks),
            rpi=over_tasks(mean_rpi),
            iqm=over_tasks(iqm_rpi),
            probability=over_tasks(improvement_probability),
            paper_rpi=float(np.mean(paper)) if paper else math.nan,
        )
