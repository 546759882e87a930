"""Networks that algorithms and explorers are made of."""

from critex.networks.adam import Adam, minimise
from critex.networks.continuous import Critic, action_range, polyak_
from critex.networks.encoder import Encoder, encoder, is_flat
from critex.networks.mlp import Flatten, mlp

__all__ = [
    "Adam",
    "Critic",
    "Encoder",
    "Flatten",
    "action_range",
    "encoder",
    "is_flat",
    "minimise",
    "mlp",
    "polyak_",
]
