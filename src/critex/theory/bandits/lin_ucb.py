"""LinUCB (Li et al., 2010; Chu et al., 2011)."""

from critex.theory.bandits.linear import UCB


class LinUCB(UCB):
    """argmax_a θᵀx_a + α√(x_aᵀA⁻¹x_a)."""
