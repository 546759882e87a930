"""Neural-LinUCB (Xu et al., 2022): CAE's UCB line goes back to it."""

from critex.theory.bandits.linear import UCB
from critex.theory.bandits.neural import NeuralLinear


class NeuralLinUCB(NeuralLinear, UCB):
    """LinUCB on φ(x|W). A and b keep the features of their day, as in Algorithm 3."""
