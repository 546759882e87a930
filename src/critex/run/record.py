"""config.toml, all that was decided for a run and the versions it ran with; card.json, what it cost."""

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
from typing import Any

import tomli_w

from critex.errors import UserError
from critex.run.files import LOCK, TEMPORARY, atomic_write
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
    """The commit critex runs from, with "+changes" where tracked files differ; None outside a checkout."""
    package = Path(__file__).resolve().parents[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        # An installed copy may lie inside somebody else's repository, whose revision says nothing about us.
        if Path(git("rev-parse", "--show-toplevel")).resolve() / "src" / "critex" != package:
            return None
        changes = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return None


def write_config(directory: Path, algorithm: str, config: dict[str, Any]) -> None:
    """Write config.toml. TOML has no null, so the fields that are None are listed under `none`."""
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
    document = {"algorithm": algorithm, "none": none, "config": table, "versions": versions()}
    atomic_write(directory / CONFIG, tomli_w.dumps(document).encode())


def read_config(run: Path | str) -> tuple[str, dict[str, Any]]:
    """(algorithm, config) of a run directory, as they were given to `Run.create`; see `from_dict`."""
    path = Path(run) / CONFIG
    require_run(Path(run))
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        algorithm, config = document["algorithm"], document["config"]
        for dotted in document.get("none", []):
            *parents, key = dotted.split(".")
            table = config
            for parent in parents:
                table = table.setdefault(parent, {})
            table[key] = None
    except (
        OSError,
        UnicodeDecodeError,
        tomllib.TOMLDecodeError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return algorithm, config


def require_run(directory: Path) -> None:
    """Refuse a path that is no run directory, saying why."""
    if not directory.exists():
        raise UserError(f"{directory} does not exist")
    if not directory.is_dir():
        raise UserError(f"{directory} is a file; a run is a directory")
    if not (directory / CONFIG).is_file():
        raise UserError(f"{directory} is not a run directory: it has no {CONFIG}")


def require_free(directory: Path) -> None:
    """Refuse a directory that holds more than a creation that was cut short leaves behind."""
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is a file; choose another --out")
    if (directory / CONFIG).exists():
        raise UserError(
            f"{directory} exists already; resume it with `critex resume {directory}` or choose another --out"
        )
    leftovers = {LOCK, METRICS, CONFIG + TEMPORARY}
    if directory.exists() and {path.name for path in directory.iterdir()} - leftovers:
        raise UserError(f"{directory} exists already and holds other files; choose another --out")


def write_card(directory: Path, card: Mapping[str, Any], steps: int, seconds: float, device: str) -> None:
    """Write card.json: `card` and the totals of the run."""
    totals = {
        "env_steps": steps,
        "seconds": round(seconds, 3),
        "steps_per_second": round(steps / seconds, 3),
        "max_rss_bytes": max_rss_bytes(),
        "device": device,
    }
    atomic_write(directory / CARD, (json.dumps({**card, "totals": totals}, indent=2) + "\n").encode())


def max_rss_bytes() -> int | None:
    """The most memory this process ever held, where the platform tells."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
