"""The final scores of runs as a terminal table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from critex.results.formatting import interval, spread
from critex.results.methods import FinalScore, score_columns

if TYPE_CHECKING:
    from rich.table import Table


def score_table(scores: Sequence[FinalScore]) -> Table:
    """Final scores as a rich table, grouped by environment."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    columns = score_columns(scores)
    first, *others = columns
    table = Table(box=SIMPLE_HEAD)
    table.add_column("method", overflow="fold")  # what distinguishes two methods may be at the end of a label
    for name in (columns[first], "95 % interval", *(columns[other] for other in others)):
        table.add_column(name, justify="right")
    for env in dict.fromkeys(score.env for score in scores):
        table.add_section()
        table.add_row(Text(env, style="bold"))
        for score in scores:
            if score.env == env:
                leading = getattr(score, first)
                cells = [score.label, spread(leading), interval(leading)]
                cells += [spread(getattr(score, other)) for other in others]
                # Text, so that [0.1, 0.2] is not read as markup.
                table.add_row(*(Text(cell) for cell in cells))
    return table
