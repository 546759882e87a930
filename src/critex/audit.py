"""The audit of training loops: another name of `critex.plugins.audit`."""

import sys

from critex.plugins.audit import *  # noqa: F403  # what type checkers see

sys.modules[__name__] = sys.modules["critex.plugins.audit"]
