"""Networks that algorithms and explorers are made of."""

from critex.networks.mlp import Flatten, mlp

__all__ = ["Flatten", "mlp"]
