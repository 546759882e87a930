"""The plug-in for Stable-Baselines3: another name of `critex.plugins.sb3`."""

import sys

from critex.plugins.sb3 import *  # noqa: F403  # what type checkers see

sys.modules[__name__] = sys.modules["critex.plugins.sb3"]
