"""Which runs make a table of the paper, and many runs at once: on this machine or on a Ray cluster."""

from critex.suite.jobs import Failure, Job
from critex.suite.launch import launch
from critex.suite.manifest import Manifest, read_manifest
from critex.suite.paper_tables import PaperParameters, PaperTable, paper_parameters, paper_table
from critex.suite.suite import Method, Suite, Task
from critex.suite.suites import SUITES, suite_named

__all__ = [
    "SUITES",
    "Failure",
    "Job",
    "Manifest",
    "Method",
    "PaperParameters",
    "PaperTable",
    "Suite",
    "Task",
    "launch",
    "paper_parameters",
    "paper_table",
    "read_manifest",
    "suite_named",
]
