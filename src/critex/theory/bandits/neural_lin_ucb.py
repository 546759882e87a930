"""Neural-LinUCB (Xu et al., 2022), on which CAE's UCB variant is based."""

from critex.theory.bandits.linear import UCB
from critex.theory.bandits.neural import NeuralLinear


class NeuralLinUCB(NeuralLinear, UCB):
    """LinUCB on φ(x|W), where W is trained with θ fixed. A and b keep the φ of the time of the pull, as in Algorithm 3."""
