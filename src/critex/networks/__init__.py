"""Networks that algorithms and explorers are made of."""

from critex.networks.adam import Adam, minimise
from critex.networks.continuous import Critic, action_range, polyak_
from critex.networks.mlp import Flatten, mlp

__all__ = ["Adam", "Critic", "Flatten", "action_range", "minimise", "mlp", "polyak_"]
