"""The paper's parameter table, number by number."""

from __future__ import annotations

import pytest

from critex import cli
from critex.cli.params import ACTIONS, TASKS, methods, report, sizes
from critex.errors import UserError
from critex.tables.paper import paper_parameters


def test_table_2() -> None:
    n = sizes(ACTIONS)
    assert (n.base, n.embedding, n.forward, n.inverse) == (25_466_652, 16_074_512, 2_110_464, 527_371)
    assert (n.plus_128, n.plus_256) == (199_819, 396_555)
    assert n.base - n.unused == 24_418_076
    added, paper = methods(n), paper_parameters()
    names = {"ICM": "icm", "RND": "rnd", "RIDE": "ride", "NovelD": "noveld", "E3B": "e3b"}
    for name, explorer in {**names, "CAE+, U of 128 rows": "cae_plus"}.items():
        assert added[name] == sum(paper.added[explorer])
        assert 100 * added[name] / n.base == pytest.approx(paper.percent[explorer], abs=0.6)
    assert added["CAE"] == 0


def test_every_task() -> None:
    every = {8: (25_463_577, 526_600, 199_048, 395_784), 16: (25_471_777, 528_656, 201_104, 397_840)}
    for actions, wanted in every.items():
        n = sizes(actions)
        assert (n.base, n.inverse, n.plus_128, n.plus_256) == wanted


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    cli.dispatch(["params", "minihack"])
    text = capsys.readouterr().out
    assert text.strip() == report().strip()
    for (
        number
    ) in "25,466,652 16,074,512 2,110,464 527,371 199,819 24,418,076 16,008,976 25,465,627 200,076".split():
        assert number in text
    trunk, heads = 16_008_976, 180_736 + 2_263_424  # RND has the first twice, NovelD both
    assert f"{2 * trunk:,}" in text and f"{trunk + heads:,}" in text
    assert all(task in text for task in TASKS)
    with pytest.raises(UserError, match="unknown parameter table 'mujoco'"):
        cli.dispatch(["params", "mujoco"])
