"""Networks that algorithms and explorers are made of."""

from critex.networks.adam import Adam, minimise, plus
from critex.networks.continuous import Critic, action_range, polyak_, regression, smallest
from critex.networks.encoder import Encoder, encoder, is_flat
from critex.networks.gradient import parameter_gradients, relu_layers, trace
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
    "parameter_gradients",
    "plus",
    "polyak_",
    "regression",
    "relu_layers",
    "smallest",
    "trace",
]
