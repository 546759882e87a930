"""Theory: Algorithm 3 of the paper's appendix, the methods of its Table 1, and exact regret."""

from critex.theory.algorithm3 import CAE
from critex.theory.planning import Agent, Episode, Streams, evaluate, optimal, play, regret
from critex.theory.problems import PROBLEMS, Problem
from critex.theory.slopes import Slope, slope

__all__ = [
    "CAE",
    "PROBLEMS",
    "Agent",
    "Episode",
    "Problem",
    "Slope",
    "Streams",
    "evaluate",
    "optimal",
    "play",
    "regret",
    "slope",
]
