"""CAE and CAE+ for a training loop of your own."""

from .cae import CAE, CAEPlus

__all__ = ["CAE", "CAEPlus"]
