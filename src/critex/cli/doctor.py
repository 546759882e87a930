"""`critex doctor [habitat]`."""

from __future__ import annotations

from dataclasses import dataclass

from critex.cli.options import parse


@dataclass
class Options:
    """Show what is installed, which environments work here, and what to install for the rest. `critex doctor habitat`
    checks the adapter for Habitat on the installed simulator."""


@dataclass
class HabitatOptions:
    """Check the adapter for Habitat on the installed simulator: sensors, actions, map, coverage, exact resets."""


def main(args: list[str]) -> None:
    """Print the results; exit with 1 if a Habitat check fails."""
    habitat = args[:1] == ["habitat"]
    parse(
        *(HabitatOptions, "critex doctor habitat", args[1:]) if habitat else (Options, "critex doctor", args)
    )
    from critex import doctor

    if habitat and not doctor.report_habitat():
        raise SystemExit(1)
    if not habitat:
        doctor.report()
