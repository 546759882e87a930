"""Networks that algorithms and explorers are made of."""

from critex.networks.continuous import Critic, action_range, minimise, polyak_
from critex.networks.mlp import Flatten, mlp

__all__ = ["Critic", "Flatten", "action_range", "minimise", "mlp", "polyak_"]
