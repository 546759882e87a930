"""Speed of the regret laboratory, and the tuning of its methods.

python benchmarks/regret.py speed    regret-steps per second beside a plain numpy LSVI-UCB; cost over d, H and K
python benchmarks/regret.py tune     α of every method → tuned.toml, results/regret/tuning.csv
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
from critex.theory.peers import LSVIUCB
from critex.theory.problems import Problem, linear_mdp, riverswim
from critex.theory.suites import ALPHAS, BANDIT_METHODS, MDP_METHODS, TUNING_SEEDS, run_cell

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "regret"
TUNED = ROOT / "src" / "critex" / "theory" / "tuned.toml"
TUNING: dict[str, tuple[Iterable[str], tuple[str, ...]]] = {
    "mdps": (MDP_METHODS, ("riverswim", "lock")),
    "bandits": (BANDIT_METHODS, ("linear-bandit", "cosine-bandit")),
}
TUNING_EPISODES = 300


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
        s = int(rng.choice(n, p=problem.start[0]))
        v = np.zeros(n)
        for h in reversed(range(H)):
            a_h = q[h].argmax(-1)
            v = r[np.arange(n), a_h] + P[np.arange(n), a_h] @ v
        lost[m] = best[s] - v[s]
        for h in range(H):
            a = int(q[h, s].argmax())
            following_state = int(rng.choice(n, p=P[s, a]))
            stored[h].append((s, a, float(r[s, a]), following_state))
            s = following_state
    return lost


def ours(problem: Problem, episodes: int, seeds: int) -> None:
    """The same for many seeds at once."""
    numbers = range(1, seeds + 1)
    regret(problem, LSVIUCB(problem, Streams(numbers, "agent"), 1.0), episodes, numbers)


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Shortest of several timings."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def speed() -> None:
    """A regret-step is one step of one seed, with the share of planning and exact evaluation that belongs to it."""
    rows: list[list[object]] = [
        ["what", "d", "H", "K", "seeds", "steps_per_second", "plain_steps_per_second"]
    ]

    def measure(what: str, problem: Problem, episodes: int, seeds: int = 10, plain: bool = True) -> None:
        steps = episodes * problem.horizon
        fast = steps * seeds / seconds(lambda: ours(problem, episodes, seeds))
        slow = steps / seconds(lambda: plain_lsvi_ucb(problem, episodes, 1), 1) if plain else float("nan")
        rows.append(
            [what, problem.dim, problem.horizon, episodes, seeds, round(fast), round(slow) if plain else ""]
        )
        print(*rows[-1], f"{fast / slow:.1f}×" if plain else "", flush=True)

    print(*rows[0])
    for episodes in (250, 500, 1000, 2000):
        measure("K", riverswim(), episodes)
    for dim in (4, 8, 16, 32, 64):
        measure("d", linear_mdp((1,), dim=dim), 300)
    for horizon in (4, 8, 16, 32):
        measure("H", riverswim(horizon=horizon), 300)
    for seeds in (1, 10, 50):
        measure("seeds", riverswim(), 500, seeds, plain=False)
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


def write(path: Path, rows: list[list[object]]) -> None:
    """A csv file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    actions = {"speed": speed, "tune": tune}
    wanted = sys.argv[1:]
    if len(wanted) != 1 or wanted[0] not in actions:
        sys.exit(__doc__)
    actions[wanted[0]]()
