"""BDQN, ACB and LMCDQN beside CAE in one DQN: the same network, learner and number of tries for each.

    python benchmarks/peers.py tune DeepSea     # four settings each, on seeds of their own
    python benchmarks/peers.py run DeepSea      # the best of them, on other seeds
    python benchmarks/peers.py table            # as Markdown, from results/peers/runs.csv

and the same with MiniGrid. A run is solved when the greedy policy, played without any bonus, returns at least 0.9; it
then ends. Called again, finished runs are kept.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critex.cli import main as critex

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "peers" / "runs.csv"
RUNS = ROOT / "runs" / "peers"
TUNING_SEED, SEEDS = 101, (11, 12, 13)
EVERY = "--stop-return 0.9 --no-tensorboard --checkpoint-every 0 --log-every 1000 --no-progress"
GREEDY = "--epsilon-start 0 --epsilon-end 0"


@dataclass(frozen=True)
class Task:
    """An environment, and what every method gets there."""

    env: str
    steps: int
    episode: int
    """Steps between two draws of BDQN; A is rebuilt after 20 of them."""
    flags: str = ""
    cae: str = ""
    """Options of CAE that differ from the environment's own settings: a memory for life, as BDQN has."""

    def fill(self, setting: str) -> str:
        """A method's flags on this task."""
        return setting.format(episode=self.episode, rebuild=20 * self.episode, cae=self.cae)


SEAS = {n: Task(f"DeepSea-{n}-v0", 250 * n, n) for n in (8, 10, 14)}
GRID = Task(
    "MiniGrid-Empty-5x5-v0", 5_000, 50,
    "--hidden 128 --learning-rate 1e-3 --batch-size 64 --buffer-size 10000 --learning-starts 200 --train-every 4"
    " --target-every 200 --eval-every 250 --eval-episodes 1",
    " --bonus.scope lifelong --bonus.strategy ucb --bonus.no-zero-first --bonus.ridge 1",
)  # fmt: skip
TASKS = (*SEAS.values(), GRID)
TUNING = (SEAS[8], GRID)  # each kind of task is tuned by itself

POSTERIOR = (
    f"--bonus-in value {GREEDY} --bonus.embedding block --bonus.phi-norm 10 --bonus.rebuild-every {{rebuild}}"
)
METHODS = {
    "CAE": [
        f"--explorer cae --bonus.scaling none{{cae}} {POSTERIOR} --alpha {a}" for a in (0.01, 0.03, 0.1, 0.3)
    ],
    "BDQN": [
        f"--explorer bdqn --bonus.sample-every {{episode}} {POSTERIOR} --alpha {a}"
        for a in (0.01, 0.03, 0.1, 0.3)
    ],
    "ACB": [
        f"--explorer acb --bonus-in value {GREEDY} --bonus.embedding auto --bonus.phi-norm none --alpha {a}"
        for a in (0.01, 0.03, 0.1, 0.3)
    ],
    "LMCDQN": [
        f"{GREEDY} --langevin {noise} --learning-rate {rate}"
        for noise in (1e-3, 1e-2)
        for rate in (1e-3, 1e-2)
    ],
}


def train(part: str, task: Task, method: str, setting: str, seed: int) -> dict[str, Any]:
    """One run, or what it left behind: the steps until it was solved, or nothing."""
    number = METHODS[method].index(setting)
    out = RUNS / part / f"{task.env}-{method}-{number}-{seed}"
    flags = task.fill(setting)
    if not (out / "card.json").exists():
        command = (
            f"train dqn --env {task.env} --steps {task.steps} --seed {seed} {EVERY} {task.flags} {flags}"
        )
        shutil.rmtree(out, ignore_errors=True)  # of a run that was interrupted
        critex([*command.split(), "--out", str(out)])
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    solved = next((line["step"] for line in lines if line["kind"] == "eval" and line["return"] >= 0.9), "")
    row = {"part": part, "task": task.env, "method": method, "seed": seed, "solved": solved}
    return row | {"steps": lines[-1]["step"], "flags": flags}


def best(method: str, task: Task, rows: list[dict[str, Any]]) -> str:
    """The setting that solved its tuning task first."""
    kind = next(t for t in TUNING if t.env.partition("-")[0] == task.env.partition("-")[0])

    def steps(setting: str) -> float:
        flags = kind.fill(setting)
        tried = [r for r in rows if (r["part"], r["task"], r["flags"]) == ("tune", kind.env, flags)]
        return min((float(r["solved"]) for r in tried if r["solved"]), default=math.inf)

    return min(METHODS[method], key=steps)


def tune(kind: str) -> Iterator[dict[str, Any]]:
    """Every setting on the tuning task and seeds."""
    for task in [task for task in TUNING if task.env.startswith(kind)]:
        for method, settings in METHODS.items():
            for setting in settings:
                yield train("tune", task, method, setting, TUNING_SEED)


def run(kind: str) -> Iterator[dict[str, Any]]:
    """The best setting of each method on every task of this kind, with fresh seeds; DeepSea up to the first size that no
    seed solves."""
    tuned = stored()
    for method in METHODS:
        for task in [task for task in TASKS if task.env.startswith(kind)]:
            rows = [train("run", task, method, best(method, task, tuned), seed) for seed in SEEDS]
            yield from rows
            if not any(row["solved"] for row in rows):
                break


def stored() -> list[dict[str, Any]]:
    """The rows of the results file."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def store(row: dict[str, Any]) -> None:
    """Put a row into the results file, in the place of an earlier one of the same run."""
    keys = ("part", "task", "method", "seed", "flags")
    merged = {tuple(str(r[k]) for k in keys): r for r in [*stored(), row]}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(merged.values())


def table() -> str:
    """Seeds solved and the steps that each took, a row for each method and a column for each task."""
    lines = ["| method | " + " | ".join(task.env for task in TASKS) + " |", "|---" * (len(TASKS) + 1) + "|"]
    for method in METHODS:
        cells = []
        for task in TASKS:
            rows = [r for r in stored() if (r["part"], r["task"], r["method"]) == ("run", task.env, method)]
            solved = sorted(int(r["solved"]) for r in rows if r["solved"])
            cells.append(
                f"{len(solved)} of {len(rows)} ({', '.join(map(str, solved)) or '–'})" if rows else ""
            )
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    parts = {"tune": tune, "run": run}
    if sys.argv[1:] == ["table"]:
        print(table())
    elif len(sys.argv) == 3 and sys.argv[1] in parts and sys.argv[2] in ("DeepSea", "MiniGrid"):
        for result in parts[sys.argv[1]](sys.argv[2]):
            store(result)
            print(*(result[k] for k in ("task", "method", "seed", "solved", "flags")), flush=True)
    else:
        sys.exit(__doc__)
