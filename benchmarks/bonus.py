"""How fast the bonus is, as ratios against three baselines timed side by side in the same run, on one thread.

(a) the paper's listing: invert A each step; (b) in-place float32 rank-1 code in tensor operations; (c) φᵀA⁻¹φ without an
update as float64 tensor operations. Ours goes through the public API of `Gram` and gets the float32 features that a
network gives; the baselines get the same rows, ready to use. Time is the thread's CPU time. Ours and the baselines take
turns in short rounds, and the ratio is the median over the rounds, so that a busy machine slows both.

    python benchmarks/bonus.py            the ratios, written to benchmarks/results/bonus.json
    python benchmarks/bonus.py --growth   cost against d, T and N, written to docs/assets/bonus_cost.csv and .svg
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy, scipy and torch are loaded

import argparse
import csv
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from critex.bonus import Gram

ROOT = Path(__file__).parent.parent
Timed = Callable[[], int]  # does some steps and says how many


def listing(dim: int) -> Callable[[Tensor], Tensor]:
    """(a) Invert A, measure, add the outer product, as the paper prints it."""
    a = torch.eye(dim)

    def step(phi: Tensor) -> Tensor:
        inverse = torch.inverse(a)
        bonus = torch.matmul(phi, torch.matmul(inverse, phi))
        a.add_(torch.outer(phi, phi))
        return bonus

    return step


def rank_one(dim: int, ridge: float = 1.0) -> Callable[[Tensor], Tensor]:
    """(b) Sherman-Morrison on A⁻¹ in float32 and in place: mv, dot, outer(out=), add(out=)."""
    inverse, outer = torch.eye(dim) / ridge, torch.empty(dim, dim)

    def step(phi: Tensor) -> Tensor:
        u = torch.mv(inverse, phi)
        bonus = torch.dot(phi, u)
        torch.outer(u, u, out=outer)
        torch.add(inverse, outer, alpha=-1.0 / (1.0 + bonus.item()), out=inverse)
        return bonus

    return step


def features(*shape: int) -> Tensor:
    """Non-negative features, as after a ReLU."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).relu_()


def microseconds(work: Timed) -> float:
    """Thread CPU time of one step."""
    begin = time.thread_time()
    steps = work()
    return 1e6 * (time.thread_time() - begin) / steps


def side_by_side(works: dict[str, Timed], rounds: int) -> dict[str, list[float]]:
    """Microseconds a step of each, round after round, in turns."""
    for work in works.values():
        work()  # warm up
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(microseconds(work))
    return times


def one_by_one(step: Callable[[Tensor], Tensor], phi: list[Tensor]) -> Timed:
    def work() -> int:
        for row in phi:
            step(row)
        return len(phi)

    return work


def single_steps() -> tuple[dict[str, Timed], int]:
    """One env, d = 256, step by step."""
    dim, phi = 256, features(400, 1, 256)
    gram = Gram(dim)
    gram.observe_rollout(features(600, 1, dim))  # past the dual form
    rows = list(phi[:, 0])
    works = {
        "ours": one_by_one(gram.observe, list(phi)),
        "a": one_by_one(listing(dim), rows[:20]),
        "b": one_by_one(rank_one(dim), rows),
    }
    return works, 15


def lifelong_rollout() -> tuple[dict[str, Timed], int]:
    """Lifelong observe_rollout, T = 2,048, d = 70."""
    dim, phi = 70, features(2048, 1, 70)
    gram = Gram(dim)

    def ours() -> int:
        gram.observe_rollout(phi)
        return len(phi)

    return {"ours": ours, "b": one_by_one(rank_one(dim), list(phi[:, 0]))}, 15


def episodic_rollout() -> tuple[dict[str, Timed], int]:
    """Episodic observe_rollout, d = 1,035, 250-step episodes, 8 envs."""
    dim, envs, steps = 1035, 8, 250
    phi = features(steps, envs, dim)
    starts = torch.zeros(steps, envs, dtype=torch.bool)
    starts[0] = True
    gram = Gram(dim, ridge=0.1, memories=envs)

    def ours() -> int:
        gram.observe_rollout(phi, starts)
        return steps * envs

    return {"ours": ours, "b": one_by_one(rank_one(dim, 0.1), list(phi[:100, 0]))}, 9


def episodic_steps() -> tuple[dict[str, Timed], int]:
    """Episodic, 64 envs, d = 267, 250-step episodes, step by step."""
    dim, envs, steps = 267, 64, 250
    phi = features(steps, envs, dim)
    gram = Gram(dim, ridge=0.1, memories=envs)
    loop = [rank_one(dim, 0.1) for _ in range(envs)]

    def ours() -> int:
        gram.reset()
        for x in phi:
            gram.observe(x)
        return steps * envs

    def theirs() -> int:
        for x in phi[:40]:
            for step, row in zip(loop, x, strict=True):
                step(row)
        return 40 * envs

    return {"ours": ours, "b": theirs}, 7


def measured_rows(n: int) -> tuple[dict[str, Timed], int]:
    gram = Gram(1024)
    gram.observe_rollout(features(1500, 1, 1024))  # past the dual form
    phi, inverse = features(n, 1024), gram.inverse()[0]
    wide = phi.double()

    def ours() -> int:
        for _ in range(20):
            gram.quadratic(phi)
        return 20 * n

    def theirs() -> int:
        for _ in range(20):
            (wide @ inverse).mul_(wide).sum(-1)
        return 20 * n

    return {"ours": ours, "c": theirs}, 15


def measured_batch() -> tuple[dict[str, Timed], int]:
    """64 rows measured without an update, d = 1,024."""
    return measured_rows(64)


def measured_row() -> tuple[dict[str, Timed], int]:
    """One row measured without an update, d = 1,024."""
    return measured_rows(1)


CASES = [  # which, against what, at least how many times as fast
    (single_steps, "a", 80.0),
    (single_steps, "b", 1.0),
    (lifelong_rollout, "b", 4.0),
    (episodic_rollout, "b", 15.0),
    (episodic_steps, "b", 3.0),
    (measured_batch, "c", 1.2),
    (measured_row, "c", 1.0),
]


def ratios() -> bool:
    """Print and write every ratio with its target; True if all are reached."""
    results, measured = [], {}
    for case, baseline, target in CASES:
        if case not in measured:
            measured[case] = side_by_side(*case())
        times = measured[case]
        ratio = statistics.median(b / o for b, o in zip(times[baseline], times["ours"], strict=True))
        row = {"case": case.__doc__, "baseline": baseline, "ratio": round(ratio, 2), "target": target}
        results.append(row | {"reached": ratio >= target})
        ours, theirs = (statistics.median(times[name]) for name in ("ours", baseline))
        verdict = "reached" if ratio >= target else "NOT REACHED"
        print(f"{case.__doc__:68} {ratio:7.2f}x ({baseline})  target {target:g}x  {verdict}", end="  ")
        print(f"[{ours:.1f} us against {theirs:.1f} us a step]", flush=True)
    path = ROOT / "benchmarks" / "results" / "bonus.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    return all(row["reached"] for row in results)


def growth() -> None:
    """Microseconds a row against d, T and N, ours in its forms and (b)."""
    rows: list[tuple[str, int, str, float]] = []

    def add(axis: str, value: int, works: dict[str, Timed], rounds: int = 3) -> None:
        for name, times in side_by_side(works, rounds).items():
            rows.append((axis, value, name, round(statistics.median(times), 2)))
            print(*rows[-1], flush=True)

    for dim in (16, 32, 64, 128, 256, 512, 1024):
        count = 300 if dim < 512 else 60
        phi = features(count, 1, dim)
        primal, rollout, dual = Gram(dim), Gram(dim), Gram(dim)
        for gram in (primal, rollout):
            gram.observe_rollout(features(max(dim, 32) + 1, 1, dim))  # past the dual form
        episode = features(dim // 2, 1, dim)

        def whole(gram: Gram = rollout, phi: Tensor = phi) -> int:
            gram.observe_rollout(phi)
            return len(phi)

        def short(gram: Gram = dual, phi: Tensor = episode) -> int:
            gram.reset()
            for x in phi:
                gram.observe(x)
            return len(phi)

        works = {
            "step by step, primal": one_by_one(primal.observe, list(phi)),
            "step by step, dual, d/2 rows": short,
            "rollout": whole,
            "(b) float32 tensor code": one_by_one(rank_one(dim), list(phi[:, 0])),
        }
        if dim <= 512:
            works["(a) the listing"] = one_by_one(listing(dim), list(phi[: 20 if dim < 256 else 4, 0]))
        add("d", dim, works)

    for length in (8, 32, 128, 512, 2048):
        phi = features(length, 1, 256)
        lifelong, episodic = Gram(256), Gram(256)
        lifelong.observe_rollout(features(300, 1, 256))

        def forever(gram: Gram = lifelong, phi: Tensor = phi) -> int:
            gram.observe_rollout(phi)
            return len(phi)

        def episode_(gram: Gram = episodic, phi: Tensor = phi) -> int:
            gram.reset()
            gram.observe_rollout(phi)
            return len(phi)

        add("T", length, {"lifelong rollout, d = 256": forever, "one episode, d = 256": episode_})

    for envs in (1, 4, 16, 64):
        phi = features(100, envs, 128)
        gram, loop = Gram(128, memories=envs), [rank_one(128) for _ in range(envs)]

        def together(gram: Gram = gram, phi: Tensor = phi, envs: int = envs) -> int:
            gram.reset()
            for x in phi:
                gram.observe(x)
            return len(phi) * envs

        def apart(loop: list[Callable[[Tensor], Tensor]] = loop, phi: Tensor = phi, envs: int = envs) -> int:
            for x in phi[:20]:
                for step, row in zip(loop, x, strict=True):
                    step(row)
            return 20 * envs

        add("N", envs, {"episodic, 100 steps, d = 128": together, "(b) float32 tensor code, a loop": apart})

    with (ROOT / "docs" / "assets" / "bonus_cost.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["axis", "value", "form", "microseconds_per_row"])
        writer.writerows(rows)
    plot(rows)


def plot(rows: list[tuple[str, int, str, float]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "critex"  # the same file from the same numbers
    from matplotlib import pyplot

    titles = {"d": "features d", "T": "rows T in one call", "N": "memories N, one per environment"}
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for axis, (key, label) in zip(axes, titles.items(), strict=True):
        for form in dict.fromkeys(form for k, _, form, _ in rows if k == key):
            points = [(value, cost) for k, value, f, cost in rows if (k, f) == (key, form)]
            axis.plot(
                *zip(*points, strict=True), "--" if form.startswith("(") else "-", marker=".", label=form
            )
        axis.set(xscale="log", yscale="log", xlabel=label, ylabel="microseconds a row")
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.savefig(ROOT / "docs" / "assets" / "bonus_cost.svg", metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--growth", action="store_true", help="measure cost against d, T and N, and plot it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.growth:
        growth()
        return 0
    return 0 if ratios() else 1


if __name__ == "__main__":
    sys.exit(main())
