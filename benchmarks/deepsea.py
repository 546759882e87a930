"""How deep a sea can DQN cross, with CAE, with its rivals and with ε-greedy? Same network, same learner, same budget.

A run is solved when the greedy policy, played without any bonus, returns at least 0.9; it has 2,000 episodes.
A size N is solved when at least 4 of 5 seeds solve it; each method climbs the ladder of sizes until it fails.

    python benchmarks/deepsea.py tune       # the same number of tries for every method, at N = 10
    python benchmarks/deepsea.py climb      # the ladder, with the best try of each
    python benchmarks/deepsea.py ablate     # one option changed at a time, at N = 12, 400 episodes
    python benchmarks/deepsea.py table      # what came out, from results/deepsea/runs.csv, and its figure

Called again, finished runs are kept and interrupted ones go on.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from critex.suite import Job, launch

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "deepsea" / "runs.csv"
FIGURE = ROOT / "docs" / "assets" / "deepsea.svg"
EPISODES, SEEDS, NEEDED = 2000, (1, 2, 3, 4, 5), 0.8
LADDER = (5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 30, 40, 50)

# Network and learner come from presets/deepsea.toml, as does what each explorer needs.
EVERY = "--stop-return 0.9 --checkpoint-every 0 --no-tensorboard --log-every 1000"

# Three tries for each method; the first number of solved seeds decides, then the episodes it took.
TRIES = {
    "ε-greedy": {
        "ε 1 → 0.05 over 50 %": "--epsilon-start 1 --epsilon-end 0.05 --epsilon-fraction 0.5",
        "ε 1 → 0.01 over 10 %": "--epsilon-start 1 --epsilon-end 0.01 --epsilon-fraction 0.1",
        "ε 0.3 throughout": "--epsilon-start 0.3 --epsilon-end 0.3",
    },
    "CAE (UCB)": {f"α {a}": f"--explorer cae --alpha {a}" for a in (0.02, 0.05, 0.2)},
    # An unseen φ of length 10 earns 100α instead of 10α, so these are the same three bonuses for it.
    "CAE (squared)": {
        f"α {a}": f"--explorer cae --bonus.strategy ucb_squared --alpha {a}" for a in (0.002, 0.005, 0.02)
    },
    "CAE (Thompson)": {
        f"α {a}": f"--explorer cae --bonus.strategy thompson --alpha {a}" for a in (0.02, 0.05, 0.2)
    },
    "counts": {f"α {a}": f"--explorer counts --alpha {a}" for a in (0.02, 0.05, 0.2)},
    "BDQN": {f"α {a}": f"--explorer bdqn --alpha {a}" for a in (0.02, 0.05, 0.2)},
    "ACB": {f"α {a}": f"--explorer acb --alpha {a}" for a in (0.02, 0.05, 0.2)},
    "LMCDQN": {
        f"noise {noise}": f"--langevin {noise} --epsilon-start 0 --epsilon-end 0"
        for noise in (0.001, 0.01, 0.1)
    },
}
# The best of the three, as `tune` found it.
BEST = {
    "ε-greedy": "ε 1 → 0.05 over 50 %",
    "CAE (UCB)": "α 0.05",
    "CAE (squared)": "α 0.02",
    "CAE (Thompson)": "α 0.05",
    "counts": "α 0.2",
    "BDQN": "α 0.2",
    "ACB": "α 0.02",
    "LMCDQN": "noise 0.1",
}

UCB = TRIES["CAE (UCB)"][BEST["CAE (UCB)"]]
REWARD = "--explorer cae --bonus-in reward --bonus.scaling welford"
ABLATIONS = {
    "as in the ladder": UCB,
    "Thompson": TRIES["CAE (Thompson)"][BEST["CAE (Thompson)"]],
    "no rebuild": f"{UCB} --bonus.rebuild-every 0",
    "phi_norm none": f"{UCB} --bonus.phi-norm None",
    "[φ(s); onehot(a)]": f"{UCB} --bonus.embedding state_and_action",
    "scaled bonus": f"{UCB} --bonus.scaling welford --scale-value-bonus",
    "CAE+": UCB.replace("--explorer cae", "--explorer cae_plus"),
    "bonus in the reward": f"{REWARD} --alpha 0.05",
    "bonus in the reward, recomputed": f"{REWARD} --alpha 0.05 --recompute",
    "bonus in the reward, ε-greedy": f"{REWARD} --alpha 0.05 --epsilon-start 1 --epsilon-end 0.05",
}
COLOURS = {
    "ε-greedy": "#9a6b00",
    "CAE (UCB)": "#0072b2",
    "CAE (squared)": "#56b4e9",
    "CAE (Thompson)": "#c65000",
    "counts": "#6b6b6b",
    "BDQN": "#009e73",
    "ACB": "#a8558a",
    "LMCDQN": "#000000",
}


@dataclass(frozen=True)
class Trial:
    """One method at one size with one seed."""

    part: str
    method: str
    size: int
    seed: int
    flags: str
    episodes: int = EPISODES

    def job(self, out: Path) -> Job:
        """`critex train dqn …`."""
        slug = "".join(
            c if c.isalnum() or c in ".+" else "-" for c in f"{self.method}-{self.size}-{self.seed}"
        )
        steps = self.size * self.episodes
        command = f"dqn --env DeepSea-{self.size}-v0 --steps {steps} --seed {self.seed} {EVERY} {self.flags}"
        train = tuple(command.split())
        return Job(f"{self.method}, N = {self.size}, seed {self.seed}", out / self.part / slug, train, steps)

    def row(self, out: Path) -> dict[str, object]:
        """Episodes until the greedy policy solved it, or nothing; the effective dimension of A, its maximum and its last."""
        job = self.job(out)
        lines = [json.loads(line) for line in (job.out / "metrics.jsonl").read_text().splitlines()]
        evaluations = [line for line in lines if line["kind"] == "eval"]
        solved = next((line["step"] // self.size for line in evaluations if line["return"] >= 0.9), "")
        dimensions = [round(x["effective_dimension"]) for x in lines if "effective_dimension" in x] or [""]
        card = json.loads((job.out / "card.json").read_text())
        return {
            "part": self.part,
            "method": self.method,
            "size": self.size,
            "seed": self.seed,
            "solved": solved,
            "episodes": lines[-1]["step"] // self.size,
            "seconds": round(card["totals"]["seconds"]),
            "most_dimensions": max(dimensions),
            "last_dimensions": dimensions[-1],
            "flags": self.flags,
        }


def run(trials: Iterable[Trial], out: Path, parallel: int) -> list[dict[str, object]]:
    """Run the trials and put their rows into the results file, in the place of earlier ones."""
    trials = list(trials)
    failures = launch([trial.job(out) for trial in trials], parallel, "deepsea")
    for failure in failures:
        print(failure)
    rows = [trial.row(out) for trial in trials if trial.job(out).finished]
    store(rows)
    return rows


def key(row: dict[str, object]) -> tuple[str, ...]:
    """What names a trial."""
    return tuple(str(row[name]) for name in ("part", "method", "size", "seed"))


def stored() -> list[dict[str, str]]:
    """The rows of the results file."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def store(rows: list[dict[str, object]]) -> None:
    """Write the results file with these rows in it."""
    merged = {key(row): row for row in [*stored(), *rows]}
    every = sorted(
        merged.values(), key=lambda r: (r["part"], r["method"], int(str(r["size"])), int(str(r["seed"])))
    )
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        names = "part method size seed solved episodes seconds most_dimensions last_dimensions flags".split()
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(every)


def climb(method: str, out: Path, parallel: int, ladder: Iterable[int], seeds: int) -> None:
    """Up the ladder until fewer than 4 of 5 seeds solve a size."""
    for size in ladder:
        trials = [Trial("climb", method, size, seed, TRIES[method][BEST[method]]) for seed in SEEDS[:seeds]]
        rows = run(trials, out, parallel)
        solved = sum(row["solved"] != "" for row in rows)
        print(f"{method}, N = {size}: {solved} of {len(rows)} seeds", flush=True)
        if solved < NEEDED * len(rows):
            return


def grid(names: Iterable[str]) -> str:
    """The ladder as Markdown: a line for each N, a column for each method; empty where nothing was run."""
    names = list(names)
    rows = [row for row in stored() if row["part"] == "climb" and row["method"] in names]
    lines = [f"| N | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for size in sorted({int(row["size"]) for row in rows}):
        cells = [[r for r in rows if r["method"] == name and int(r["size"]) == size] for name in names]
        lines.append(f"| {size} | {' | '.join(cell(chosen) for chosen in cells)} |")
    return "\n".join(lines)


def cell(rows: list[dict[str, str]]) -> str:
    """How many seeds solved it, and after how many episodes."""
    if not rows:
        return ""
    solved = sorted(int(row["solved"]) for row in rows if row["solved"])
    count = f"{len(solved)} of {len(rows)}"
    return f"{count} ({', '.join(map(str, solved))})" if solved else count


def table(part: str) -> str:
    """The tries or the ablations as Markdown, a line for each."""
    groups: dict[str, list[dict[str, str]]] = {}
    for row in stored():
        if row["part"] == part:
            groups.setdefault(row["method"], []).append(row)
    lines = ["| setting | seeds solved (episodes until solved) |", "|---|---|"]
    return "\n".join(lines + [f"| {name} | {cell(rows)} |" for name, rows in groups.items()])


def plot() -> None:
    """Episodes until solved over N, a point for each seed, a cross for each that failed."""
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "critex", "svg.fonttype": "none"}  # the same bytes every time, and few
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    for i, (method, colour) in enumerate(COLOURS.items()):
        shift = 0.15 * (i - len(COLOURS) // 2)  # points of one size beside each other
        rows = [row for row in stored() if row["part"] == "climb" and row["method"] == method]
        for mark, chosen in (
            ("o", [r for r in rows if r["solved"]]),
            ("x", [r for r in rows if not r["solved"]]),
        ):
            x = [int(row["size"]) + shift for row in chosen]
            y = [int(row["solved"] or row["episodes"]) for row in chosen]
            axes.plot(
                x, y, mark, color=colour, markersize=5, label=f"DQN + {method}" if mark == "o" else None
            )
    axes.set(xlabel="N", ylabel="episodes until solved (× never)", yscale="log")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["tune", "climb", "ablate", "table"])
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "deepsea")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--method", choices=list(TRIES), help="with this one only")
    parser.add_argument("--from", dest="start", type=int, default=0, help="begin the ladder at this size")
    parser.add_argument("--to", dest="end", type=int, default=max(LADDER), help="and end it here")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds of each size")
    args = parser.parse_args()
    if args.what == "tune":
        chosen = {args.method: TRIES[args.method]} if args.method else TRIES
        tries = [(f"{m}: {label}", flags) for m, group in chosen.items() for label, flags in group.items()]
        run([Trial("tune", m, 10, s, f) for s in SEEDS[:3] for m, f in tries], args.out, args.jobs)
    elif args.what == "climb":
        for method in [args.method] if args.method else BEST:
            ladder = [size for size in LADDER if args.start <= size <= args.end]
            climb(method, args.out, args.jobs, ladder, args.seeds)
    elif args.what == "ablate":
        trials = [Trial("ablate", m, 12, s, f, 400) for s in SEEDS[:3] for m, f in ABLATIONS.items()]
        run(trials, args.out, args.jobs)
    if args.what == "table":
        plot()
    for part in (grid(list(BEST)[:4]), grid(list(BEST)[4:]), table("tune"), table("ablate")):
        print(part, end="\n\n")


if __name__ == "__main__":
    main()
