"""The printed numbers agree with each other: what the paper derives follows from what it reports."""

from __future__ import annotations

from statistics import fmean

import pytest

from critex.errors import UserError
from critex.tables import paper_parameters, paper_table


@pytest.mark.parametrize("name", ["mujoco-v4", "mujoco-dsac", "minihack", "habitat"])
def test_printed_improvements_follow_from_printed_scores(name: str) -> None:
    table = paper_table(name)
    assert table.rpi
    for (task, method), printed in table.rpi.items():
        algorithm = method.partition("+")[0]
        base = table.scores.get((task, algorithm)) or table.scores[task, f"{algorithm}+e3b"]
        rpi = 100 * (table.scores[task, method][0] - base[0]) / abs(base[0])
        assert rpi == pytest.approx(printed, rel=5e-3), (task, method)  # three digits are printed


@pytest.mark.parametrize("name", ["mujoco-v4", "mujoco-dsac"])
def test_printed_means_follow_from_printed_improvements(name: str) -> None:
    table = paper_table(name)
    for method, printed in table.rpi_mean.items():
        each = [value for (_, m), value in table.rpi.items() if m == method]
        assert len(each) == 6
        assert fmean(each) == pytest.approx(printed, abs=0.06)


def test_sizes_of_the_tables() -> None:
    sizes = {
        name: len(paper_table(name).scores) for name in ("mujoco-v4", "mujoco-dsac", "minihack", "habitat")
    }
    assert sizes == {"mujoco-v4": 36, "mujoco-dsac": 12, "minihack": 27, "habitat": 3}
    assert [paper_table(name).table for name in sizes] == [3, 4, 5, 6]
    assert paper_table("minihack").hours == {"impala+cae": 17.0, "impala+e3b": 22.0}


def test_printed_percentages_follow_from_parameter_counts() -> None:
    table = paper_parameters()
    for explorer, printed in table.percent.items():
        percent = 100 * sum(table.added[explorer]) / table.base
        assert percent == pytest.approx(printed, abs=0.5 if printed > 1 else 0.05), explorer
    assert table.added.keys() == table.percent.keys()


def test_an_unknown_table_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="did you mean minihack"):
        paper_table("minhack")
