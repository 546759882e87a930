"""The bandit core: the Gram matrix, the strategies (UCB, Thompson), and bonus scaling. Needs torch, numpy, scipy."""

from ._checks import NotFinite
from .gram import Gram
from .scalers import BatchMomentScaler, NoScaler, Scaler, WelfordScaler
from .strategies import STRATEGIES, Strategy, strategy

__all__ = [
    "STRATEGIES",
    "BatchMomentScaler",
    "Gram",
    "NoScaler",
    "NotFinite",
    "Scaler",
    "Strategy",
    "WelfordScaler",
    "strategy",
]
