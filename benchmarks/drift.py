"""How far a bonus drifts from a fresh factorisation of the same A over very many updates.

Features are rectified and badly scaled (four orders of magnitude between directions). One memory is fed by rollouts of 1,000
rows, the other by single rows too, 64 after each rollout. At ten points on the way the bonuses of 256 probes are compared with
those of a Cholesky factorisation of A itself. Ten million updates are the default; pass --updates for fewer.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from critex.bonus import Gram

TARGET = 1e-6
PATH = Path(__file__).parent / "results" / "drift.json"


def drift(gram: Gram, probes: NDArray[np.float64]) -> float:
    """Largest relative difference between the bonuses of the probes and those of a fresh factorisation."""
    fresh = cho_solve(cho_factor(gram.matrix()[0].numpy()), probes.T).T
    exact = np.einsum("nd,nd->n", probes, fresh)
    return float(np.abs(gram.quadratic(probes).numpy() / exact - 1.0).max())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--updates", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=32)
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    mixing = generator.standard_normal((arguments.dim, arguments.dim)) * np.logspace(0, -4, arguments.dim)
    rollouts, mixed = Gram(arguments.dim), Gram(arguments.dim)
    results, done, begin = [], 0, time.thread_time()
    for point in range(1, 11):
        while done < point * arguments.updates // 10:
            phi = np.maximum(generator.standard_normal((1000, arguments.dim)) @ mixing, 0.0)
            rollouts.observe_rollout(phi[:, None])
            mixed.observe_rollout(phi[:-64, None])
            for row in phi[-64:]:
                mixed.observe(row[None])
            done += len(phi)
        probes = np.maximum(generator.standard_normal((256, arguments.dim)) @ mixing, 0.0)
        results.append({"updates": done, "rollouts": drift(rollouts, probes), "mixed": drift(mixed, probes)})
        print(f"{done:>10,} updates: relative drift {results[-1]['rollouts']:.1e} by rollouts, ", end="")
        print(
            f"{results[-1]['mixed']:.1e} with single rows  [{time.thread_time() - begin:.0f} s]", flush=True
        )
    worst = max(max(row["rollouts"], row["mixed"]) for row in results)
    verdict = "reached" if worst <= TARGET else "NOT REACHED"
    print(f"worst {worst:.1e}, target {TARGET:g}: {verdict}")
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(
        json.dumps({"dim": arguments.dim, "target": TARGET, "worst": worst, "points": results}, indent=2)
        + "\n"
    )
    return 0 if worst <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
