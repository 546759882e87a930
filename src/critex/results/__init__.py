"""Run directories as data: runs, the methods they belong to, the cells of a suite, visits, statistics."""

from critex.results.cells import Cell, Cells, Score, load_cells, scores
from critex.results.methods import FinalScore, MethodRuns, final_score_of, group
from critex.results.runs import RunData, load_run, load_runs
from critex.results.stats import Estimate, Summary
from critex.results.visits import VisitHistory

__all__ = [
    "Cell",
    "Cells",
    "Estimate",
    "FinalScore",
    "MethodRuns",
    "RunData",
    "Score",
    "Summary",
    "VisitHistory",
    "final_score_of",
    "group",
    "load_cells",
    "load_run",
    "load_runs",
    "scores",
]
