"""Speed of the regret laboratory, and the tuning of its methods.

python benchmarks/regret.py speed    regret-steps per second of CPU time beside a plain numpy LSVI-UCB, over d, H and K
python benchmarks/regret.py tune     α of every method → tuned.toml, results/regret/tuning.csv
python benchmarks/regret.py tables   the tables of docs/theory.md, from results/regret/slopes.csv
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critex.theory import Streams, optimal, regret
from critex.theory.bandits import BANDITS
from critex.theory.peers import LSVIUCB
from critex.theory.problems import PROBLEMS, Problem, linear_mdp, riverswim
from critex.theory.suites import ALPHAS, BANDIT_METHODS, MDP_METHODS, TUNING_SEEDS, run_cell

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "regret"
TUNED = ROOT / "src" / "critex" / "theory" / "tuned.toml"
TUNING: dict[str, tuple[Iterable[str], tuple[str, ...]]] = {
    "mdps": (MDP_METHODS, ("riverswim", "lock")),
    "bandits": (BANDIT_METHODS, ("linear-bandit", "cosine-bandit")),
}
TUNING_EPISODES = 300
TABLE_1 = {
    "lsvi-ucb": "LSVI-UCB | ✓ | ✗ | ✗ | ✗",
    "nn-ucb": "NN-UCB | ✓ | ✓ | ✗ | ✗",
    "opt-rlsvi": "OPT-RLSVI | ✓ | ✗ | ✗ | ✗",
    "lsvi-phe": "LSVI-PHE | ✓ | ✓ | ✓ | ✗",
    "bdqn": "BDQN | ✓ | ✗ | ✓ | ✓",
    "acb": "ACB | ✓ | ✗ | ✓ | ✓",
    "lmcdqn": "LMCDQN | ✓ | ✗ | ✓ | ✓",
    "cae-ucb": "CAE, Algorithm 3, UCB | ✓ | ✓ | ✓ | ✓",
    "cae-thompson": "CAE, Algorithm 3, Thompson | ✓ | ✓ | ✓ | ✓",
    "cae-theorem": "CAE, theorem's α and η | ✓ | ✓ |  | ",
    "cae-refit": "CAE, refitted | – | – |  | ",
}
"""Label and marks of each method, as the paper's Table 1 prints them."""


def plain_lsvi_ucb(problem: Problem, episodes: int, seed: int, alpha: float = 1.0) -> NDArray[Any]:
    """LSVI-UCB as in its pseudo-code, for one seed: the regression is solved from all stored episodes each time."""
    P, r, phi, H = problem.transition[0], problem.reward[0], problem.phi[0], problem.horizon
    n, actions, d = phi.shape
    rng, best = np.random.default_rng(seed), optimal(problem)[0, 0].max(-1)
    stored: list[list[tuple[int, int, float, int]]] = [[] for _ in range(H)]
    lost = np.empty(episodes)
    for m in range(episodes):
        q, value = np.empty((H, n, actions)), np.zeros(n)
        for h in reversed(range(H)):
            A, b = np.eye(d), np.zeros(d)
            if stored[h]:
                s, a, reward, following = (np.array(column) for column in zip(*stored[h], strict=True))
                rows = phi[s, a]
                A += rows.T @ rows
                b = rows.T @ (reward + value[following])
            inverse = np.linalg.inv(A)
            width = np.sqrt(np.einsum("nad,de,nae->na", phi, inverse, phi))
            q[h] = np.minimum(phi @ (inverse @ b) + alpha * width, H)
            value = q[h].max(-1)
        state = int(rng.choice(n, p=problem.start[0]))
        v = np.zeros(n)
        for h in reversed(range(H)):
            a_h = q[h].argmax(-1)
            v = r[np.arange(n), a_h] + P[np.arange(n), a_h] @ v
        lost[m] = best[state] - v[state]
        for h in range(H):
            action = int(q[h, state].argmax())
            after = int(rng.choice(n, p=P[state, action]))
            stored[h].append((state, action, float(r[state, action]), after))
            state = after
    return lost


def ours(problem: Problem, episodes: int, seeds: int) -> None:
    """The same for many seeds at once."""
    numbers = range(1, seeds + 1)
    regret(problem, LSVIUCB(problem, Streams(numbers, "agent"), 1.0), episodes, numbers)


def cpu_seconds(*works: Callable[[], object], repeats: int = 3) -> NDArray[Any]:
    """Median CPU time of each; they take turns, so that all see the same load of the machine."""
    times = np.empty((repeats, len(works)))
    for row in times:
        for i, work in enumerate(works):
            began = time.process_time()
            work()
            row[i] = time.process_time() - began
    return np.asarray(np.median(times, 0))


def speed() -> None:
    """A regret-step is one step of one seed, with the share of planning and exact evaluation that belongs to it."""
    names = ["what", "d", "H", "K", "seeds", "steps_per_cpu_second", "plain_steps_per_cpu_second", "ratio"]
    rows: list[list[object]] = [names]

    def measure(what: str, problem: Problem, episodes: int, seeds: int = 10) -> None:
        steps = episodes * problem.horizon
        fast, slow = cpu_seconds(
            lambda: ours(problem, episodes, seeds), lambda: plain_lsvi_ucb(problem, episodes, 1)
        )
        speeds = steps * seeds / fast, steps / slow
        ratio = f"{speeds[0] / speeds[1]:.1f}"
        rows.append([what, problem.dim, problem.horizon, episodes, seeds, *(round(v) for v in speeds), ratio])
        print(*rows[-1], flush=True)

    print(*names)
    for episodes in (125, 250, 500):
        measure("K", riverswim(), episodes)
    for dim in (4, 16, 64):
        measure("d", linear_mdp((1,), dim=dim), 125)
    for horizon in (4, 8, 16):
        measure("H", riverswim(horizon=horizon), 125)
    for seeds in (1, 10, 50):
        measure("seeds", riverswim(), 125, seeds)
    write(RESULTS / "speed.csv", rows)


def tune() -> None:
    """The α of the grid with the smallest regret, on seeds of its own; the same number of tries for every method.

    One α for all MDPs and one for all bandits: the sum over the tuning problems of regret / largest of the grid.
    """
    rows: list[list[object]] = [["problem", "method", "alpha", "regret"]]
    lines = ["# α of each method; made by benchmarks/regret.py tune."]
    for kind, (methods, problems) in TUNING.items():
        lines.append(f"\n[{kind}]")
        for method in methods:
            if method == "cae-theorem":
                continue
            score = np.zeros(len(ALPHAS))
            for problem in problems:
                lost = [run_cell(problem, method, TUNING_SEEDS, TUNING_EPISODES, a).regret for a in ALPHAS]
                means = np.array([each.sum(1).mean() for each in lost])
                score += means / means.max()
                rows += [[problem, method, a, f"{m:.6g}"] for a, m in zip(ALPHAS, means, strict=True)]
                print(problem, method, means.round(1), flush=True)
            lines.append(f"{method} = {ALPHAS[int(score.argmin())]}")
    write(RESULTS / "tuning.csv", rows)
    TUNED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tables() -> None:
    """Slope with its interval, and the regret at the end: the paper's Table 1 with a measured column for each problem."""
    with (RESULTS / "slopes.csv").open(encoding="utf-8", newline="") as file:
        rows = {(row["problem"], row["method"]): row for row in csv.DictReader(file)}

    def cell(problem: str, method: str) -> str:
        row = rows[problem, method]
        slope, low, high = (f"{float(row[k]):.2f}" for k in ("slope", "slope_low", "slope_high"))
        return f"{slope} [{low}, {high}], {float(row['regret']):.0f}"

    for head, methods, problems in (
        (
            "method | provable, linear | provable, network | toy deep RL | complex deep RL",
            TABLE_1,
            list(PROBLEMS),
        ),
        ("bandit", {name: name for name in BANDIT_METHODS}, list(BANDITS)),
    ):
        print(f"| {head} | {' | '.join(problems)} |")
        print("|---" * (head.count("|") + 1 + len(problems)) + "|")
        for method, label in methods.items():
            print(f"| {label} | {' | '.join(cell(problem, method) for problem in problems)} |")
        print()


def write(path: Path, rows: list[list[object]]) -> None:
    """A csv file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    actions = {"speed": speed, "tables": tables, "tune": tune}
    wanted = sys.argv[1:]
    if len(wanted) != 1 or wanted[0] not in actions:
        sys.exit(__doc__)
    actions[wanted[0]]()
