"""What flows between environment, explorer and algorithm: transitions, and the buffers that hold them."""

from critex.data.replay import Replay
from critex.data.transition import Batch, Transition
from critex.data.tree import Tree, tree_leaves, tree_map

__all__ = ["Batch", "Replay", "Transition", "Tree", "tree_leaves", "tree_map"]
