"""Runs: seeding, device, directory, metrics, progress, evaluation, checkpoint and exact resume."""

from critex.run.checkpoint import Checkpoints
from critex.run.config import RunConfig, from_dict, to_dict
from critex.run.evaluation import evaluate
from critex.run.interrupt import Interrupted
from critex.run.metrics import TIMING_FIELDS, read_metrics
from critex.run.record import read_config
from critex.run.run import Run
from critex.run.seeding import choose_device, preserved_rng, seed_everything

__all__ = [
    "TIMING_FIELDS",
    "Checkpoints",
    "Interrupted",
    "Run",
    "RunConfig",
    "choose_device",
    "evaluate",
    "from_dict",
    "preserved_rng",
    "read_config",
    "read_metrics",
    "seed_everything",
    "to_dict",
]
