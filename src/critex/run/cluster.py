"""Ray: started on this machine, or a cluster that is already there."""

from __future__ import annotations

import os
import socket
from importlib import import_module
from typing import Any

from critex.errors import UserError


def connect(address: str | None, cpus: int) -> tuple[Any, bool]:
    """Ray, and whether it was started or connected here, so that the caller should shut it down.

    Connects to the cluster at `address`, or else starts one on this machine with `cpus` CPUs.
    """
    try:
        ray = import_module("ray")
    except ImportError:
        raise UserError("ray is not installed; install it with: pip install 'critex[ray]'") from None
    if ray.is_initialized():
        return ray, False
    if address:
        _knock(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    try:
        ray.init(**({"address": address} if address else own), log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        ray.shutdown()
        what = f"no Ray cluster can be reached at {address}" if address else "Ray does not start here"
        raise UserError(f"{what}: {one_line(error)}") from error
    return ray, True


def _knock(address: str) -> None:
    """Refuse an address that does not answer: Ray itself would keep trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host and address in ("auto", "local"):
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        why = error if isinstance(error, OSError) else "an address is auto, host:6379 or ray://host:10001"
        raise UserError(f"no Ray cluster can be reached at {address}: {why}") from error


def one_line(error: Exception) -> str:
    """An error message on one line, shortened if it is a whole traceback."""
    text = " ".join(str(error).split())
    return text if len(text) < 400 else f"{text[:200]} … {text[-200:]}"
