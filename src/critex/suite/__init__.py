"""Benchmarks as data, and a launcher that runs them on this machine or on a Ray cluster."""

from critex.suite.jobs import Failure, Job
from critex.suite.launch import launch
from critex.suite.manifest import Manifest, claim, read_manifest
from critex.suite.places import ray_cluster
from critex.suite.suite import Method, Suite, Task
from critex.suite.suites import SUITES, suite_named

__all__ = [
    "SUITES",
    "Failure",
    "Job",
    "Manifest",
    "Method",
    "Suite",
    "Task",
    "claim",
    "launch",
    "ray_cluster",
    "read_manifest",
    "suite_named",
]
