"""LinTS (Agrawal and Goyal, 2013)."""

from critex.theory.bandits.linear import Thompson


class LinTS(Thompson):
    """argmax_a θ̃ᵀx_a with θ̃ ~ N(θ, α²A⁻¹)."""
