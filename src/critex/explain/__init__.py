"""Look inside a trained agent: play it, measure how new each step is, and write a page that shows it."""

from critex.explain.page import Explanation, PlayedEpisode, PlayedStep, write_explanation
from critex.explain.play import Novelty, explain

__all__ = ["Explanation", "Novelty", "PlayedEpisode", "PlayedStep", "explain", "write_explanation"]
