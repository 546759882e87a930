"""Our scores beside the paper's: the paper's numbers, the grid that compares them, and its formats."""

from critex.tables.catalogue import NamedTable, fill, table_named
from critex.tables.formats import FORMATS
from critex.tables.grid import Grid
from critex.tables.paper import PaperParameters, PaperTable, paper_parameters, paper_table

__all__ = [
    "FORMATS",
    "Grid",
    "NamedTable",
    "PaperParameters",
    "PaperTable",
    "fill",
    "paper_parameters",
    "paper_table",
    "table_named",
]
