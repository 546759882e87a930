"""The bandit algorithms behind CAE, on contextual bandits with known regret."""

from critex.theory.bandits.linear import LinTS, LinUCB
from critex.theory.bandits.neural import NeuralLinTS, NeuralLinUCB
from critex.theory.bandits.problems import BANDITS, Bandit, bandit_regret

__all__ = ["BANDITS", "Bandit", "LinTS", "LinUCB", "NeuralLinTS", "NeuralLinUCB", "bandit_regret"]
