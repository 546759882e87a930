"""The bandit core: the Gram matrix, what a strategy makes of it, and how a bonus is scaled. Needs torch, numpy, scipy."""

from critex.bonus.gram import Gram
from critex.bonus.scalers import BatchMomentScaler, NoScaler, Scaler, WelfordScaler
from critex.bonus.strategies import STRATEGIES, Strategy, strategy

__all__ = [
    "STRATEGIES",
    "BatchMomentScaler",
    "Gram",
    "NoScaler",
    "Scaler",
    "Strategy",
    "WelfordScaler",
    "strategy",
]
