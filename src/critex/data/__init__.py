"""Transitions, which environment, explorer and algorithm exchange, and the buffers that store them."""

from critex.data.episode import Episode
from critex.data.replay import Replay
from critex.data.returns import gae, n_step_return
from critex.data.rollout import Rollout
from critex.data.seeds import derive_seed
from critex.data.transition import Batch, Transition
from critex.data.tree import Tree, tree_leaves, tree_map
from critex.data.vtrace import vtrace

__all__ = [
    "Batch",
    "Episode",
    "Replay",
    "Rollout",
    "Transition",
    "Tree",
    "derive_seed",
    "gae",
    "n_step_return",
    "tree_leaves",
    "tree_map",
    "vtrace",
]
