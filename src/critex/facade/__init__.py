"""CAE and CAE+ for your own training loop."""

from .cae import CAE
from .cae_plus import CAEPlus

__all__ = ["CAE", "CAEPlus"]
