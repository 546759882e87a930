"""docs/benchmark.md and its picture: every explorer on every task that `results/` holds, scores beside costs.

    python benchmarks/ranking.py

Nothing here names a result: a table added to `results/` appears on the page. The text is in benchmarks/ranking.md, the costs
are in benchmarks/results/explorers.json.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from critex.results.stats import (
    Estimate,
    Floats,
    PairedScores,
    improvement_probability,
    iqm,
    stratified,
    summarise,
)

ROOT = Path(__file__).resolve().parents[1]
RESULTS, COSTS = ROOT / "results", ROOT / "benchmarks" / "results" / "explorers.json"
TEMPLATE = ROOT / "benchmarks" / "ranking.md"
PAGE, FIGURE = ROOT / "docs" / "benchmark.md", ROOT / "docs" / "assets" / "benchmark.svg"
DEEPEST = "DeepSea-N, deepest N solved"
NAMES = {
    "none": "no bonus",
    "cae": "CAE",
    "cae_plus": "CAE+",
    **{explorer: explorer.upper() for explorer in ("e3b", "rnd", "icm", "ride", "acb", "bdqn", "lmcdqn")},
    "noveld": "NovelD",
}

Row = dict[str, str]


@dataclass(frozen=True)
class Task:
    """What a score belongs to: scores of two explorers are compared within one task only."""

    suite: str = field(compare=False)
    """The folder below results/. Two folders may have runs of the same learner in the same environment."""
    learner: str
    env: str

    def __str__(self) -> str:
        return f"{self.env}, {self.learner}"


@dataclass(frozen=True)
class Score:
    """The final score of one run."""

    task: Task
    explorer: str
    """`cae`, or `cae (root)` for a variant."""
    seed: int
    value: float
    setting: str
    """What was set for this run: its α."""


Scores = dict[Task, dict[str, dict[int, float]]]
"""Scores by task, explorer and seed."""


# Reading results/ -----------------------------------------------------------------------------------------


def read(path: Path) -> list[Row]:
    """The rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def suite_runs(path: Path, rows: list[Row]) -> Iterator[Score]:
    """The runs.csv of a suite. One in a subfolder holds a variant if the suite's own table has the same task."""
    folder, *inner = path.relative_to(RESULTS).parts[:-1]
    own = RESULTS / folder / path.name
    same = {row["task"] for row in read(own)} if inner and own.exists() else set()
    for row in rows:
        if row.get("finished", "True") != "True" or not row["final_score"]:
            continue
        if row["method"].startswith("reference"):  # a policy that does not learn
            continue
        learner, _, rest = row["method"].partition("+")
        learner, _, plain = learner.partition("-")
        explorer, _, variant = rest.partition("-") if rest else ("none", "", plain)
        variants = [variant] if variant else []
        variants += inner if row["task"] in same else []
        label = f"{explorer} ({', '.join(variants)})" if variants else explorer
        task = Task(folder, learner, row["task"])
        yield Score(task, label, int(row["seed"]), float(row["final_score"]), f"α = {row.get('alpha', '–')}")


def deepsea_ladder(path: Path, rows: list[Row]) -> Iterator[Score]:
    """The ladder of DeepSea: the score of a seed is the largest N that it solved, of those that all seeds were run on."""
    task = Task(path.relative_to(RESULTS).parts[0], "dqn", DEEPEST)
    rows = [row for row in rows if row["part"] == "climb"]
    runs = Counter((row["method"], row["size"]) for row in rows)
    most = {method: max(n for (m, _), n in runs.items() if m == method) for method, _ in runs}
    deepest: dict[tuple[str, int, str], int] = {}
    for row in rows:
        if runs[row["method"], row["size"]] == most[row["method"]]:
            found = re.search(r"--(alpha|langevin) (\S+)", row["flags"])
            setting = "ε" if found is None else f"{'α' if found[1] == 'alpha' else 'noise'} = {found[2]}"
            key = (deepsea_explorer(row), int(row["seed"]), setting)
            deepest[key] = max(deepest.get(key, 0), int(row["size"]) if row["solved"] else 0)
    for (explorer, seed, setting), size in deepest.items():
        yield Score(task, explorer, seed, size, setting)


def deepsea_explorer(row: Row) -> str:
    """The explorer that the flags of a row name."""
    explorer = re.search(r"--explorer (\S+)", row["flags"])
    strategy = re.search(r"--bonus.strategy (\S+)", row["flags"])
    name = explorer[1] if explorer else "lmcdqn" if "--langevin" in row["flags"] else "none"
    return f"{name} ({strategy[1]})" if strategy else name


def trainers(path: Path, rows: list[Row]) -> Iterator[Score]:
    """Explorers in another library, and in critex with the same hyperparameters (`benchmarks/plugins_learning.py`)."""
    learner = {"deepsea": "dqn", "minigrid": "ppo", "pendulum": "sac"}[path.stem]
    for row in rows:
        task = Task(path.relative_to(RESULTS).parts[0], f"{learner} of {row['trainer']}", row["task"])
        yield Score(task, row["explorer"], int(row["seed"]), float(row["mean_return"]), f"α = {row['alpha']}")


READERS: dict[frozenset[str], Callable[[Path, list[Row]], Iterator[Score]]] = {
    frozenset(("task", "method", "seed", "final_score")): suite_runs,
    frozenset(("part", "method", "size", "seed", "solved")): deepsea_ladder,
    frozenset(("task", "trainer", "explorer", "seed", "mean_return")): trainers,
}
"""The reader of a table by the columns that it must have."""


def load() -> tuple[list[Score], list[str]]:
    """All scores in results/, and the tables that hold none."""
    scores: list[Score] = []
    others: list[str] = []
    for path in sorted(RESULTS.rglob("*.csv")):
        rows = read(path)
        reader = next((r for columns, r in READERS.items() if rows and columns <= rows[0].keys()), None)
        if reader:
            scores += reader(path, rows)
        elif path.name not in ("curves.csv", "tuning.csv"):
            others.append(str(path.relative_to(RESULTS)))
    return scores, others


# Comparing ------------------------------------------------------------------------------------------------


def normalised(scores: Iterable[Score]) -> Scores:
    """Scores as shares of the best explorer's mean on the task.

    (x − low)/(high − low) with low = min(0, lowest mean); high/x if all means are negative, as returns that are costs are.
    """
    found: Scores = {}
    for score in scores:
        seeds = found.setdefault(score.task, {}).setdefault(score.explorer, {})
        if score.seed in seeds:
            raise SystemExit(f"{score.explorer} on {score.task}, seed {score.seed}: two runs in results/")
        seeds[score.seed] = score.value
    for explorers in found.values():
        means = [summarise(list(seeds.values())).mean for seeds in explorers.values()]
        low, high = min(0.0, *means), max(means)
        scale = (high - low) or 1.0
        for seeds in explorers.values():
            seeds.update({s: high / x if high < 0 else (x - low) / scale for s, x in seeds.items()})
    return found


def pairs(scores: Scores, explorer: str, other: str = "none") -> dict[Task, PairedScores]:
    """(other, explorer) of every task that both were run on, [S] each: the seeds that they share."""
    found: dict[Task, PairedScores] = {}
    for task, explorers in scores.items():
        base, own = explorers.get(other, {}), explorers.get(explorer, {})
        if seeds := sorted(base.keys() & own.keys()):
            found[task] = np.array([base[s] for s in seeds]), np.array([own[s] for s in seeds])
    return found


def iqm_of(column: int) -> Callable[[Sequence[PairedScores]], Floats]:
    """The interquartile mean over the seeds of all tasks, of the baseline (0) or of the explorer (1)."""
    return lambda tasks: iqm(np.concatenate([pair[column] for pair in tasks], axis=-1))


def estimate(
    statistic: Callable[[Sequence[PairedScores]], Floats], tasks: Sequence[PairedScores]
) -> Estimate:
    """The statistic of the tasks with its bootstrap interval, for which a task with a single seed is held fixed."""
    single, several = ([task for task in tasks if (task[0].size == 1) == one] for one in (True, False))

    def of(drawn: Sequence[PairedScores]) -> Floats:
        shape = (*drawn[0][0].shape[:-1], 1)
        fixed = [(np.broadcast_to(b, shape), np.broadcast_to(x, shape)) for b, x in single]
        return statistic([*drawn, *fixed])

    return stratified(of, several) if several else stratified(statistic, tasks)


@dataclass(frozen=True)
class Place:
    """One line of the ranking."""

    explorer: str
    tasks: int
    runs: int
    score: Estimate
    base: Estimate
    """The algorithm alone, on the same tasks and seeds."""
    cae: Estimate | None
    """With CAE, on the same tasks and seeds; None if CAE was not run on all of them."""
    better: Estimate
    """The probability that a run with the explorer beats one without."""
    worst: tuple[float, float, Task]
    """The lowest mean difference to the algorithm alone, the mean score there, and the task."""


def ranking(scores: Scores) -> list[Place]:
    """Explorers by their interquartile mean, those on more tasks first; `none` is what they are compared with."""
    places = []
    for explorer in dict.fromkeys(e for explorers in scores.values() for e in explorers):
        tasks = pairs(scores, explorer)
        if tasks and explorer != "none":
            runs = sum(len(x) for _, x in tasks.values())
            against_cae = pairs(scores, explorer, "cae")
            gains = ((float((x - b).mean()), float(x.mean()), task) for task, (b, x) in tasks.items())
            worst = min(gains, key=lambda gain: gain[0])
            score, base, better = (
                estimate(statistic, list(tasks.values()))
                for statistic in (iqm_of(1), iqm_of(0), improvement_probability)
            )
            cae = (
                estimate(iqm_of(0), list(against_cae.values()))
                if against_cae.keys() == tasks.keys()
                else None
            )
            places.append(Place(explorer, len(tasks), runs, score, base, cae, better, worst))
    return sorted(places, key=lambda p: (-p.tasks, -p.score.value, p.explorer))


def is_variant(place: Place) -> bool:
    """Whether the explorer was run with other options than its usual ones."""
    return "(" in place.explorer


# Writing --------------------------------------------------------------------------------------------------


def name(explorer: str) -> str:
    """`cae (root)` → CAE (root)."""
    base, _, variant = explorer.partition(" ")
    return f"{NAMES.get(base, base)} {variant}".rstrip()


def shown(estimate: Estimate | None) -> str:
    """0.75 [0.70, 0.80]; without an interval if there is none."""
    if estimate is None:
        return "–"
    interval = "" if math.isnan(estimate.low) else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.value:.2f}{interval}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def costs() -> dict[str, dict[str, Any]]:
    """Parameters added and time against no explorer, by explorer."""
    found: dict[str, dict[str, Any]] = json.loads(COSTS.read_text(encoding="utf-8"))["shares"]
    return found


def cost(explorer: str) -> dict[str, Any]:
    """The costs of an explorer, of a variant those of its explorer; empty if they were not measured."""
    return costs().get(explorer.partition(" ")[0], {})


def shown_cost(explorer: str) -> tuple[str, str]:
    """Parameters added and time."""
    found = cost(explorer)
    return (f"{found['parameters_added']:,}", f"{found['total_ratio']:.2f}") if found else ("–", "–")


def ranking_table(places: Iterable[Place]) -> str:
    """The ranking, with costs."""
    head = ("explorer", "tasks", "runs", "score (IQM)", "CAE, same tasks", "no bonus, same tasks")
    rows = [
        (
            *(name(p.explorer), f"{p.tasks}", f"{p.runs}", shown(p.score), shown(p.cae), shown(p.base)),
            *(shown(p.better), f"{p.worst[0]:+.2f}, {p.worst[2]}", *shown_cost(p.explorer)),
        )
        for p in places
    ]
    return table((*head, "P(better than no bonus)", "worst task", "parameters added", "time"), rows)


def task_table(scores: Scores, explorers: Sequence[str]) -> str:
    """Mean normalised score and number of seeds of every explorer on every task."""
    rows = []
    for task, found in sorted(scores.items(), key=lambda item: (item[0].suite, str(item[0]))):
        cells = [
            f"{summarise(list(found[e].values())).mean:.2f} ({len(found[e])})" if e in found else ""
            for e in explorers
        ]
        rows.append((str(task), *cells))
    return table(("task", *map(name, explorers)), rows)


def tuning_table(scores: Sequence[Score], explorers: Sequence[str]) -> str:
    """What was tried for each of these explorers before its runs, and what the runs then used."""
    tried: dict[tuple[str, str], set[str]] = {}
    for path in sorted(RESULTS.glob("*/tuning.csv")):
        for row in read(path):
            if "explorer" in row:
                tried.setdefault((path.parent.name, row["explorer"]), set()).add(
                    row.get("alpha") or row["try"]
                )
    for path in sorted(RESULTS.glob("*/runs.csv")):
        for row in read(path):
            if row.get("part") == "tune":
                tried.setdefault((path.parent.name, deepsea_explorer(row)), set()).add(row["flags"])
    used: dict[tuple[str, str], dict[str, None]] = {}
    for score in scores:
        if score.explorer in explorers and (score.explorer != "none" or (score.task.suite, "none") in tried):
            used.setdefault((score.task.suite, score.explorer), {})[score.setting] = None
    rows = []
    for suite, explorer in sorted(used):
        n = len(tried.get((suite, explorer), ()))
        rows.append(
            (suite, name(explorer), f"{n} settings" if n else "none", ", ".join(used[suite, explorer]))
        )
    return table(("results", "explorer", "tried here", "used"), rows)


def page(scores: Sequence[Score], others: Sequence[str]) -> str:
    """The whole page."""
    per_task = normalised(scores)
    places = ranking(per_task)
    everywhere = [p for p in places if p.tasks > 1]
    narrow = [p for p in places if p.tasks == 1 and not is_variant(p)]
    ablations = [p for p in places if p.tasks == 1 and is_variant(p)]
    columns = ["none", *(p.explorer for p in (*everywhere, *narrow))]
    seeds = sorted({len(runs) for found in per_task.values() for runs in found.values()})
    values = {
        "runs": len(scores),
        "tasks": len(per_task),
        "seeds": "–".join(map(str, sorted({seeds[0], seeds[-1]}))),
        "everywhere": ranking_table(everywhere),
        "narrow": ranking_table(narrow),
        "by_task": task_table(per_task, columns),
        "deepest": DEEPEST,
        "tuning": tuning_table(scores, columns),
        "ablations": ", ".join(name(p.explorer) for p in ablations) or "none",
        "others": ", ".join(f"`{other}`" for other in others) or "none",
    }
    return TEMPLATE.read_text(encoding="utf-8").format(**values)


def plot(places: Sequence[Place], path: Path) -> None:
    """Interquartile means with intervals, hollow marks for CAE and no bonus on the same tasks; costs beside them."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "critex", "svg.fonttype": "none"}  # the same bytes every time, and few
    import matplotlib.pyplot as plt

    places = list(reversed(places))
    y = np.arange(len(places))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 0.9 + 0.42 * len(places)), sharey=True, width_ratios=(3, 1)
    )
    for i, place in enumerate(places):
        if place.cae is not None and place.explorer != "cae":
            left.plot(place.cae.value, i, "D", mfc="white", color="#0072b2", ms=6, label="CAE, same tasks")
        left.plot(place.base.value, i, "o", mfc="white", color="#6b6b6b", ms=7, label="no bonus, same tasks")
        if not math.isnan(place.score.low):
            left.plot([place.score.low, place.score.high], [i, i], color="#0072b2", lw=3, alpha=0.5)
        left.plot(place.score.value, i, "o", color="#0072b2", ms=7, label="with the explorer")
        if place.worst[0] < -0.005:  # as shown, not −0.00
            left.plot(place.worst[1], i, "x", color="#c0002a", ms=7, label="a task where it does harm")
        if found := cost(place.explorer):
            right.barh(i, found["total_ratio"] - 1, color="#c65000", height=0.5)
            right.text(
                found["total_ratio"] - 1, i, f" ({found['parameters_added']:,})", va="center", fontsize=8
            )
    left.set_yticks(
        y, [f"{name(p.explorer)} · {p.tasks} task{'s' * (p.tasks > 1)}, {p.runs} runs" for p in places]
    )
    left.set(xlabel="normalised score: interquartile mean, 95 % interval", xlim=(-0.03, 1.08))
    right.set(xlabel="extra time\n(parameters added)", xlim=(0, 1.2))
    right.xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = left.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    left.legend(
        once.values(),
        once.keys(),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=2,
        fontsize=9,
        frameon=False,
    )
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Write the page and its picture."""
    scores, others = load()
    PAGE.write_text(page(scores, others), encoding="utf-8")
    plot([p for p in ranking(normalised(scores)) if p.tasks > 1 or not is_variant(p)], FIGURE)
    print(f"{PAGE.relative_to(ROOT)}, {FIGURE.relative_to(ROOT)}: {len(scores)} runs")


if __name__ == "__main__":
    main()
