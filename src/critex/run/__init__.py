"""Runs: seeding, device, directory, metrics, progress, evaluation, checkpoints and exact resume."""

from critex.data.files import Damaged
from critex.run.checkpoint import Checkpoints, load_part
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
    "Damaged",
    "Interrupted",
    "Run",
    "RunConfig",
    "choose_device",
    "evaluate",
    "from_dict",
    "load_part",
    "preserved_rng",
    "read_config",
    "read_metrics",
    "seed_everything",
    "to_dict",
]
