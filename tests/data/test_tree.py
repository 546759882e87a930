import pytest
import torch

from critex.data import tree_leaves, tree_map


def test_map_keeps_the_structure() -> None:
    tree = {"a": torch.ones(2), "b": {"c": torch.full((3,), 2.0)}}
    doubled = tree_map(lambda x: 2 * x, tree)
    assert [leaf.tolist() for leaf in tree_leaves(doubled)] == [[2.0, 2.0], [4.0, 4.0, 4.0]]
    assert list(doubled) == ["a", "b"] and list(doubled["b"]) == ["c"]


def test_map_pairs_leaves_by_key_not_by_order() -> None:
    one = {"a": torch.tensor(1.0), "b": torch.tensor(10.0)}
    two = {"b": torch.tensor(20.0), "a": torch.tensor(2.0)}
    total = tree_map(torch.add, one, two)
    assert (total["a"].item(), total["b"].item()) == (3.0, 30.0)


def test_a_tensor_is_a_tree() -> None:
    assert tree_map(lambda x, y: x + y, torch.tensor(1.0), torch.tensor(2.0)).item() == 3.0


def test_different_trees_are_refused() -> None:
    with pytest.raises(ValueError, match="'b'"):
        tree_map(torch.add, {"a": torch.ones(1), "b": torch.ones(1)}, {"a": torch.ones(1)})
