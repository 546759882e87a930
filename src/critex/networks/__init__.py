"""The networks of algorithms and explorers."""

from critex.networks.continuous import Critic, action_range
from critex.networks.encoder import Encoder, encoder, is_flat
from critex.networks.fast import faster
from critex.networks.flatten import Flatten
from critex.networks.mlp import Activation, ActorCriticConfig, NetworkConfig, mlp
from critex.networks.modes import eval_mode
from critex.networks.optim import Adam, minimise, polyak_

__all__ = [
    "Activation",
    "ActorCriticConfig",
    "Adam",
    "Critic",
    "Encoder",
    "Flatten",
    "NetworkConfig",
    "action_range",
    "encoder",
    "eval_mode",
    "faster",
    "is_flat",
    "minimise",
    "mlp",
    "polyak_",
]
