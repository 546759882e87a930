"""Neural-LinUCB (Xu et al., 2022), on which CAE's UCB variant is based."""

from critex.theory.bandits.linear import UCB
from critex.theory.bandits.neural import NeuralLinear


class NeuralLinUCB(NeuralLinear, UCB):
    """LinUCB on φ(x|W). A and b keep the features as they were when observed, as in Algorithm 3."""
