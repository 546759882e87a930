"""suite.toml and regret.toml: which suite a directory of runs belongs to, and with which budget."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Protocol

import tomli_w

from critex.data.files import TEMPORARY, atomic_write
from critex.errors import UserError
from critex.ranges import Natural, Options, Positive
from critex.run.config import from_dict
from critex.run.files import disk_errors
from critex.run.record import CARD, CONFIG
from critex.suite.ledger import Ledger
from critex.suite.suites import SUITES

MANIFEST = "suite.toml"


class Named(Protocol):
    """What the manifest needs to know of a suite."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...


@dataclass(frozen=True)
class Kind:
    """The directories of one command: the file that marks them, the command, and its suites."""

    file: str
    command: str
    suites: Mapping[str, Named]


SUITE_RUNS = Kind(MANIFEST, "critex suite run NAME", SUITES)


@dataclass(frozen=True)
class Manifest(Options):
    """The settings shared by all runs of a directory."""

    suite: str
    version: Natural
    budget: Positive
    """Steps of every run, as a fraction of the suite's."""


def read_manifest(directory: Path, suite: Named | None = None, kind: Kind = SUITE_RUNS) -> Manifest:
    """The manifest of a directory of runs.

    A `UserError` if there is none, if it is broken, if its suite is unknown or is not the given `suite`, or if its
    version differs from the one of this critex.
    """
    path = directory / kind.file
    try:
        found = from_dict(Manifest, tomllib.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        why = f"it does not exist; make it with: {kind.command} --out {quote(str(directory))}"
        if directory.exists():
            why = f"it has no {kind.file}" if directory.is_dir() else "it is a file"
        raise UserError(f"{directory} is not a directory of `{kind.command}`: {why}") from None
    except (OSError, ValueError) as error:  # UserError and invalid TOML are ValueErrors
        raise UserError(f"cannot read {path}: {error}") from error
    if found.suite not in kind.suites:
        raise UserError(f"{path} names the suite {found.suite!r}, which this critex does not have")
    known = kind.suites[found.suite]
    if suite and suite.name != found.suite:
        raise UserError(f"{directory} holds runs of the suite {found.suite}, not of {suite.name}")
    if found.version != known.version:
        raise UserError(
            f"{directory} holds runs of version {found.version} of {found.suite}, and this critex has version "
            f"{known.version}, whose runs cannot be compared with them; choose another directory"
        )
    return found


def claim(directory: Path, suite: Named, budget: float, kind: Kind = SUITE_RUNS) -> None:
    """Reserve `directory` for this suite and budget; a `UserError` if it holds, or is about to hold, runs of another."""
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        claimed = (directory / kind.file).exists()
        if not claimed and any(path.suffix != TEMPORARY for path in directory.iterdir()):
            raise UserError(f"{directory} holds other files, and no {kind.file}; choose another --out")
        if not claimed or not _holds_runs(directory):
            wanted = Manifest(suite.name, suite.version, budget)
            atomic_write(directory / kind.file, tomli_w.dumps(asdict(wanted)).encode())
    found = read_manifest(directory, suite, kind)
    if found.budget != budget:
        raise UserError(
            f"{directory} holds runs with --budget {found.budget:g}, which cannot be mixed with {budget:g}; "
            "use the same budget or choose another --out"
        )


def _holds_runs(directory: Path) -> bool:
    """Whether there is a run, or one that was started and has not ended."""
    return Ledger(directory).open or any(any(directory.rglob(name)) for name in (CONFIG, CARD))
