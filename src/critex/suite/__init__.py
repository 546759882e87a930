"""Many runs at once, on this machine."""

from critex.suite.launch import Job, launch

__all__ = ["Job", "launch"]
