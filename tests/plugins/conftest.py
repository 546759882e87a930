"""RLlib pins gymnasium 1.2.2, so its tests run in an environment of its own: make test-rllib."""

from __future__ import annotations

from importlib.metadata import version

collect_ignore = [] if version("gymnasium") == "1.2.2" else ["test_rllib.py"]
