"""critex: the critic as an explorer.

Exploration bonuses from the value network that an RL algorithm already has.
"""

from __future__ import annotations

from critex import envs
from critex.bonus import Gram
from critex.embedding import last_hidden
from critex.errors import UserError
from critex.facade import CAE, CAEPlus

__all__ = ["CAE", "CAEPlus", "Gram", "UserError", "last_hidden"]
__version__ = "0.1.0"

envs.register()
