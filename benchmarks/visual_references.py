"""The suite `visual` against its references, episode by episode.

    python benchmarks/visual_references.py runs/visual results/visual/paired.csv

All runs of one seed are evaluated on the same episodes: the same levels, the same starts. The differences between two
policies on the same episode vary much less than their coverage, which depends on the size of the level above all.
Standard errors are over episodes, so they say nothing about how much training with another seed would change.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np

from critex.run import read_metrics
from critex.suite import suite_named

REFERENCES = ("random", "wall")


def last_coverages(run: Path) -> list[float]:
    """The coverage of each episode of a run's last evaluation; empty if the run is not finished."""
    if not (run / "card.json").exists():
        return []
    lines = [line for line in read_metrics(run) if line["kind"] == "eval"]
    return list(lines[-1]["coverages"]) if lines else []


def paired(directory: Path) -> list[dict[str, Any]]:
    """One row for each method with finished runs: its coverage, and the mean difference to each reference."""
    suite = suite_named("visual")
    found = {
        (method.name, seed): np.array(values)
        for task, method in suite.cells()
        for seed in suite.seeds
        if (values := last_coverages(directory / task.name / method.name / f"seed-{seed}"))
    }
    rows = []
    for method in dict.fromkeys(name for name, _ in found):
        seeds = [seed for name, seed in found if name == method]
        values = np.concatenate([found[method, seed] for seed in seeds])
        row: dict[str, Any] = {
            "method": method,
            "seeds": " ".join(map(str, seeds)),
            "episodes": len(values),
            "coverage": f"{values.mean():.4f}",
        }
        for reference in REFERENCES:
            both = [seed for seed in seeds if (f"reference-{reference}", seed) in found]
            gains = [found[method, seed] - found[f"reference-{reference}", seed] for seed in both]
            gain = np.concatenate(gains) if gains else np.full(1, np.nan)
            row[f"over_{reference}"] = f"{gain.mean():.4f}"
            row[f"over_{reference}_error"] = f"{gain.std(ddof=1) / len(gain) ** 0.5:.4f}" if gains else "nan"
        rows.append(row)
    return rows


def main() -> None:
    """Print the rows, and write them as CSV."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="directory of the suite visual")
    parser.add_argument("out", type=Path, nargs="?", help="CSV file to write")
    options = parser.parse_args()
    rows = paired(options.runs)
    if not rows:
        parser.error(f"{options.runs} holds no finished run of the suite visual")
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with options.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
