"""Networks that algorithms and explorers are made of."""

from critex.networks.continuous import Critic, action_range, polyak_
from critex.networks.mlp import Flatten, mlp

__all__ = ["Critic", "Flatten", "action_range", "mlp", "polyak_"]
