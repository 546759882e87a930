"""One thread per process (the tests run in parallel), hypothesis without a clock, Ctrl-C that works."""

from __future__ import annotations

import os
import signal

import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  Ray's default, 15, starves its workers beside other tests
# A shell lets what it runs in the background ignore Ctrl-C, and the tests and their children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
