"""`critex doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from critex.cli.options import parse


@dataclass
class Options:
    """Show what is installed, which environments work here, and what to install for the rest."""


def main(args: list[str]) -> None:
    """Print the findings."""
    parse(Options, "critex doctor", args)
    from critex import doctor

    doctor.report()
