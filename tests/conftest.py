"""One thread per process (the tests run in parallel), and hypothesis without a clock."""

from __future__ import annotations

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
