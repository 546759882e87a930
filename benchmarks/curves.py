"""The raw learning curves of a suite's runs as small files, to be kept beside the code, and pictures of what is kept.

    python benchmarks/curves.py runs/minigrid results/minigrid
    python benchmarks/curves.py runs/more results/minigrid --add --every 2000
    python benchmarks/curves.py results/minigrid --draw docs/assets/minigrid.svg

Writes curves.csv: for each run one line per step at which episodes ended, or per so many steps, with their number and
the mean of their extrinsic returns; and runs.csv: for each run its last step, its final score (mean of the last 100 training
episodes), its seconds, its α, and in `last_alpha` what an automatic α came to. `--add` keeps the runs that are there and not
among the new ones. A suite that is scored by evaluations, or by another measure than the return, has its own curves and
scores: evaluations instead of episodes, that measure instead of the return.
"""

from __future__ import annotations

import argparse
import csv
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from critex.errors import UserError
from critex.results.cells import SCORES
from critex.results.runs import RunData, load_run
from critex.results.stats import aggregate, common_grid
from critex.suite.manifest import MANIFEST, read_manifest
from critex.tables import table_named

KEY = ("task", "method", "seed")
COLUMNS = (*KEY, "step", "episodes")

Row = dict[str, Any]


def curve(run: RunData, name: str, every: int) -> list[tuple[int, int, float]]:
    """(step, number of episodes, mean return) for each stretch of so many steps in which episodes ended."""
    if name not in run.series:
        return []
    pairs = [(-(-int(step) // every) * every, value) for step, value in zip(*run.series[name], strict=True)]
    groups = [(step, [r for _, r in group]) for step, group in groupby(pairs, key=itemgetter(0))]
    return [(step, len(returns), sum(returns) / len(returns)) for step, returns in groups]


def rows_of(directory: Path, every: int, problems: list[str]) -> tuple[list[Row], list[Row]]:
    """The lines of curves.csv and of runs.csv."""
    score, measure, series = "episodes", "return", "return"
    if (directory / MANIFEST).exists():
        table = table_named(read_manifest(directory).suite)
        score, measure, series = table.score, table.measure, table.curve or series
    curves: list[Row] = []
    totals: list[Row] = []
    for path in sorted(p.parent for p in directory.glob("*/*/seed-*/config.toml")):
        try:
            run = load_run(path, problems)
        except UserError as error:  # it has just begun
            problems.append(f"{error}; left out")
            continue
        key = dict(zip(KEY, (*path.parts[-3:-1], str(run.seed)), strict=True))
        points = curve(run, series, every)
        alpha, alphas = run.config.get("alpha"), run.values("alpha")
        curves += [{**key, "step": step, "episodes": n, measure: f"{mean:.5g}"} for step, n, mean in points]
        totals.append(
            {
                **key,
                "steps": int(run.series[series][0][-1]) if points else 0,
                "episodes": sum(n for _, n, _ in points),
                "final_score": f"{SCORES[score](run, measure):.5g}",
                "seconds": round(run.card.get("seconds", 0)),
                "alpha": alpha,
                "last_alpha": f"{alphas[-1]:.5g}" if isinstance(alpha, str) and alphas.size else "",
                "finished": bool(run.card),
            }
        )
    return curves, totals


def joined(path: Path, rows: list[Row], add: bool) -> list[Row]:
    """The lines of a table; with `add`, after those lines of the file that belong to other runs.

    A column that the file does not have yet is empty in its lines.
    """
    old = read(path) if add and path.exists() else []
    if old and rows and not old[0].keys() <= rows[0].keys():
        raise SystemExit(f"{path} has the columns {', '.join(old[0])}, the runs have {', '.join(rows[0])}")
    new = {tuple(row[name] for name in KEY) for row in rows}
    kept = [row for row in old if tuple(row[name] for name in KEY) not in new]
    return [dict.fromkeys(rows[0], "") | row for row in kept] + rows


def write(path: Path, rows: list[Row]) -> None:
    """Write a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read(path: Path) -> list[Row]:
    """The lines of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def draw(rows: list[Row], path: Path, points: int = 40) -> None:
    """A panel for each task: the mean over seeds of every method, and each seed as a thin line.

    The colour is the explorer, the dashes are the algorithm.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "critex", "svg.fonttype": "none"}  # the same bytes every time, and few
    import matplotlib.pyplot as plt

    tasks, methods = (list(dict.fromkeys(row[name] for row in rows)) for name in ("task", "method"))
    algorithms, explorers = (
        list(dict.fromkeys(method.partition("+")[part] for method in methods)) for part in (0, 2)
    )
    measure = next(name for name in rows[0] if name not in COLUMNS)
    columns, lines = min(len(tasks), 3), -(-len(tasks) // 3)
    size = (3.8 * columns, 2.8 * lines)
    figure, panels = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    for axes, task in zip(panels.flat, tasks, strict=False):
        for method in methods:
            seeds: dict[str, list[tuple[float, float]]] = {}
            for row in rows:
                if (row["task"], row["method"]) == (task, method):
                    seeds.setdefault(row["seed"], []).append((float(row["step"]), float(row[measure])))
            if not seeds:
                continue
            series = [tuple(zip(*own, strict=True)) for own in seeds.values()]
            found = aggregate(series, common_grid([steps for steps, _ in series], points))
            colour = f"C{explorers.index(method.partition('+')[2])}"
            style = ("-", "--", ":", "-.")[algorithms.index(method.partition("+")[0]) % 4]
            axes.plot(found.grid, found.mean, style, color=colour, label=method)
            axes.plot(found.grid, found.seeds.T, style, color=colour, linewidth=0.5, alpha=0.5)
        axes.set(title=task, xlabel="steps")
        axes.locator_params(axis="x", nbins=4)
        axes.legend(fontsize="x-small")
    for axes in panels.flat[len(tasks) :]:
        axes.axis("off")
    panels[0][0].set_ylabel(measure)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Read the runs, write the two files; or draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", type=Path, help="directory of a suite, TASK/METHOD/seed-N inside; of results to --draw"
    )
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--every", type=int, default=1, help="steps of one line")
    parser.add_argument("--add", action="store_true", help="keep the other runs that OUT holds")
    parser.add_argument("--draw", type=Path, help="picture of the curves that RUNS holds")
    args = parser.parse_args()
    if args.draw:
        draw(read(args.runs / "curves.csv"), args.draw)
        return
    if not args.out:
        parser.error("name the folder to write, or a picture to --draw")
    problems: list[str] = []
    curves, totals = rows_of(args.runs, args.every, problems)
    for problem in problems:
        print(problem)
    if not totals or not curves:
        parser.error(f"{args.runs} holds no runs TASK/METHOD/seed-N" + (" with scores" if totals else ""))
    tables = {"runs.csv": totals, "curves.csv": curves}
    tables = {name: joined(args.out / name, rows, args.add) for name, rows in tables.items()}
    for name, rows in tables.items():
        write(args.out / name, rows)
    print(f"{len(tables['runs.csv'])} runs, {len(tables['curves.csv'])} points: {args.out}")


if __name__ == "__main__":
    main()
