"""Our scores beside the paper's, as data: tasks × methods, for each cell and over all tasks.

A cell without runs stays empty and is left out of every mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from critex.results.cells import Cell, Score
from critex.results.stats import (
    Estimate,
    Floats,
    PairedScores,
    Summary,
    improvement_probability,
    iqm_rpi,
    mean_rpi,
    rpi,
    stratified,
    summarise,
)


@dataclass(frozen=True)
class Row:
    """One cell: our result and the paper's."""

    task: str
    method: str
    ours: Summary
    unfinished: int
    """How many of our runs are not finished."""
    paper: tuple[float, float] | None
    rpi: float
    """Relative improvement in percent, over the seeds that method and baseline share."""
    paper_rpi: float

    @property
    def difference(self) -> float:
        """Our mean − the paper's."""
        return self.ours.mean - self.paper[0] if self.paper else math.nan


@dataclass(frozen=True)
class Comparison:
    """A method against its baseline, over all tasks on which both were run."""

    method: str
    base: str
    tasks: int
    of: int
    """Tasks on which both should be run."""
    pairs: int
    """Shared seeds, summed over tasks."""
    rpi: Estimate
    iqm: Estimate
    probability: Estimate
    paper_rpi: float


@dataclass(frozen=True)
class Grid:
    """A table of tasks × methods."""

    title: str
    cells: tuple[Cell, ...]
    """Every (task, method), ordered by task; methods are written `sac+cae`."""
    baseline_of: Mapping[str, str] = field(default_factory=dict)
    """Method → the method it is compared with."""
    paper: Mapping[Cell, tuple[float, float]] = field(default_factory=dict)
    """(mean, spread) as printed; NaN if there is no spread."""
    paper_seeds: int = 0
    ours: Mapping[Cell, Sequence[Score]] = field(default_factory=dict)
    budget: float = 1.0
    """Steps of our runs as a fraction of the full suite's."""
    gain: str = "RPI %"
    """Column name of 100·(x − baseline)/|baseline|."""
    chance: bool = True
    """Whether scores vary between seeds, so that statistics over seeds make sense."""
    notes: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for task, _ in self.cells))

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for _, method in self.cells))

    def scores(self, task: str, method: str | None) -> Sequence[Score]:
        """Our runs of one cell."""
        return self.ours.get((task, method or ""), ())

    def pairs(self, task: str, method: str) -> PairedScores | None:
        """The scores of baseline and method on a task, for the seeds they share."""
        base, ours = (
            {score.seed: score.value for score in self.scores(task, m)}
            for m in (self.baseline_of.get(method), method)
        )
        both = sorted(base.keys() & ours.keys())
        return (np.array([base[s] for s in both]), np.array([ours[s] for s in both])) if both else None

    @cached_property
    def rows(self) -> list[Row]:
        """One row for each cell, ordered by task."""
        return [self._row(task, method) for task, method in self.cells]

    def _row(self, task: str, method: str) -> Row:
        scores, pairs = self.scores(task, method), self.pairs(task, method)
        paper, base = (self.paper.get((task, m)) for m in (method, self.baseline_of.get(method, "")))
        return Row(
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
        """Every method that has a baseline, over all tasks, if we or the paper have results for it."""
        every = [self._comparison(m) for m in self.methods if m in self.baseline_of and self.chance]
        return [c for c in every if c.tasks or not math.isnan(c.paper_rpi)]

    def _comparison(self, method: str) -> Comparison:
        found = {task: pairs for task in self.tasks if (pairs := self.pairs(task, method))}
        tasks = list(found.values())
        known = found or self.tasks  # the paper's mean is over our tasks, if we have any
        paper = [
            row.paper_rpi for row in self.rows if row.method == method and row.paper and row.task in known
        ]

        def over_tasks(statistic: Callable[[Sequence[PairedScores]], Floats]) -> Estimate:
            return stratified(statistic, tasks) if tasks else Estimate(math.nan, math.nan, math.nan)

        return Comparison(
            method,
            self.baseline_of[method],
            tasks=len(tasks),
            of=sum(m == method for _, m in self.cells),
            pairs=sum(ours.size for _, ours in tasks),
            rpi=over_tasks(mean_rpi),
            iqm=over_tasks(iqm_rpi),
            probability=over_tasks(improvement_probability),
            paper_rpi=float(np.mean(paper)) if paper else math.nan,
        )
