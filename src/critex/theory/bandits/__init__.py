"""The bandit algorithms behind CAE, on contextual bandits with known regret."""

from critex.theory.bandits.lin_ts import LinTS
from critex.theory.bandits.lin_ucb import LinUCB
from critex.theory.bandits.neural_lin_ts import NeuralLinTS
from critex.theory.bandits.neural_lin_ucb import NeuralLinUCB
from critex.theory.bandits.problems import BANDITS, Bandit, bandit_regret

__all__ = ["BANDITS", "Bandit", "LinTS", "LinUCB", "NeuralLinTS", "NeuralLinUCB", "bandit_regret"]
