"""config.toml: the options of a run and the versions it was made with; card.json: the cost of the run."""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from shlex import quote
from typing import Any

import tomli_w

from critex.data.files import TEMPORARY, atomic_write, read_file
from critex.errors import UserError
from critex.run.files import LOCK
from critex.run.metrics import METRICS

CONFIG = "config.toml"
CARD = "card.json"
PACKAGES = (
    *("critex", "torch", "numpy", "scipy", "gymnasium", "tyro"),
    *("mujoco", "minigrid", "minihack", "nle", "vizdoom", "ray"),
)


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages, and the git revision of a critex checkout."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    revision = git_revision()
    return found | ({"revision": revision} if revision else {})


def git_revision() -> str | None:
    """The commit of this critex checkout, with "+changes" if tracked files differ; None outside a checkout."""
    package = Path(__file__).resolve().parents[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        # An installed copy may lie inside another repository, whose revision says nothing about critex.
        if Path(git("rev-parse", "--show-toplevel")).resolve() / "src" / "critex" != package:
            return None
        changes = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return None


def write_config(directory: Path, algorithm: str, config: dict[str, Any], run_id: str = "") -> None:
    """Write config.toml. TOML has no null, so the fields that are None are listed under `none`.

    `run_id` is also in every checkpoint, so that checkpoints of another run are recognised.
    """
    none: list[str] = []

    def without_none(data: dict[str, Any], where: str) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, value in data.items():
            if value is None:
                none.append(where + key)
            else:
                kept[key] = without_none(value, f"{where}{key}.") if isinstance(value, dict) else value
        return kept

    table = without_none(config, "")
    document = {"algorithm": algorithm, "id": run_id, "none": none, "config": table, "versions": versions()}
    atomic_write(directory / CONFIG, tomli_w.dumps(document).encode())


def read_config(run: Path | str) -> tuple[str, dict[str, Any]]:
    """(algorithm, config) of a run directory, as they were given to `Run.create`; see `from_dict`."""
    path = Path(run) / CONFIG
    try:
        document = _document(Path(run))
        algorithm, config = document["algorithm"], document["config"]
        if not isinstance(algorithm, str):
            raise TypeError(f"algorithm is {algorithm!r}")
        for dotted in document.get("none", []):
            *parents, key = dotted.split(".")
            table = config
            for parent in parents:
                table = table.setdefault(parent, {})
            table[key] = None
    except KeyError as error:
        raise UserError(f"cannot read {path}: it has no {error}") from error
    except (TypeError, AttributeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return algorithm, config


def read_run_id(run: Path) -> str:
    """The id of a run; empty if its config names none."""
    return str(_document(run).get("id", ""))


def _document(run: Path) -> dict[str, Any]:
    """config.toml, parsed."""
    require_run(run)
    path = run / CONFIG
    try:
        return tomllib.loads(read_file(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # invalid UTF-8 and invalid TOML are ValueErrors
        raise UserError(f"cannot read {path}: {error}") from error


def require_run(directory: Path) -> None:
    """Refuse a path that is not a run directory, saying why."""
    try:
        directory.stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        shown = str(directory) if len(str(directory)) < 200 else f"{str(directory)[:60]}…"
        missing = isinstance(error, FileNotFoundError)
        raise UserError(
            f"{shown} " + ("does not exist" if missing else f"cannot be opened: {reason}")
        ) from error
    if not directory.is_dir():
        raise UserError(f"{directory} is a file; a run is a directory")
    if not (directory / CONFIG).is_file():
        raise UserError(f"{directory} is not a run directory: it has no {CONFIG}")


def require_free(directory: Path) -> None:
    """Refuse a directory with files other than those that an interrupted `Run.create` leaves behind."""
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is a file; choose another --out")
    if (directory / CARD).exists():
        raise UserError(f"{directory} holds a finished run; choose another --out")
    if (directory / CONFIG).exists():
        raise UserError(
            f"{directory} exists already; resume it with `critex resume {quote(str(directory))}` or choose another --out"
        )
    leftovers = {LOCK, METRICS, CONFIG + TEMPORARY}
    if directory.exists() and {path.name for path in directory.iterdir()} - leftovers:
        raise UserError(f"{directory} exists already and holds other files; choose another --out")


def write_card(directory: Path, card: Mapping[str, Any], steps: int, seconds: float, device: str) -> None:
    """Write card.json: `card` and the totals of the run."""
    totals = {
        "env_steps": steps,
        "seconds": round(seconds, 3),
        "steps_per_second": round(steps / max(seconds, 1e-9), 3),
        "max_rss_bytes": max_rss_bytes(),
        "device": device,
    }
    atomic_write(directory / CARD, (json.dumps({**card, "totals": totals}, indent=2) + "\n").encode())


def max_rss_bytes() -> int | None:
    """Peak memory of this process, where the platform reports it."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
