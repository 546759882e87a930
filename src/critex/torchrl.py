"""The plug-in for TorchRL: another name of `critex.plugins.torchrl`."""

import sys

from critex.plugins.torchrl import *  # noqa: F403  # what type checkers see

sys.modules[__name__] = sys.modules["critex.plugins.torchrl"]
