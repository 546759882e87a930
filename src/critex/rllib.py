"""The plug-in for RLlib: another name of `critex.plugins.rllib`."""

import sys

from critex.plugins.rllib import *  # noqa: F403  # what type checkers see

sys.modules[__name__] = sys.modules["critex.plugins.rllib"]
