"""Observations are a tensor or a (nested) dict of tensors; these helpers handle both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

Tree: TypeAlias = "Tensor | dict[str, Tree]"


def tree_map(fn: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Apply `fn` to the leaves of one tree, or to the matching leaves of several with the same keys."""
    if isinstance(tree, dict):
        return {key: tree_map(fn, child, *(_child(r, key) for r in rest)) for key, child in tree.items()}
    leaf: Tree = fn(tree, *rest)
    return leaf


def tree_leaves(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in the order of its keys."""
    if isinstance(tree, dict):
        return [leaf for child in tree.values() for leaf in tree_leaves(child)]
    return [tree]


def _child(tree: Tree, key: str) -> Tree:
    if not isinstance(tree, dict) or key not in tree:
        raise ValueError(f"trees differ: one has the key {key!r}, another has not")
    return tree[key]
