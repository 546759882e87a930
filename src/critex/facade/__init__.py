"""CAE and CAE+ for your own training loop."""

from .cae import CAE, CAEPlus

__all__ = ["CAE", "CAEPlus"]
