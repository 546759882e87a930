"""Coverage of policies that do not learn, on the test levels: python benchmarks/visual_references.py [EPISODES]"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from functools import partial

import numpy as np

from critex.envs import Envs
from critex.envs.references import follow_wall, random_steps
from critex.run.evaluation import evaluate

ENV = "VizdoomExplore-test-v0?resolution=40x30"


def main() -> None:
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print("policy,episodes,coverage,standard_error")
    for name, policy in (("random", random_steps), ("wall", follow_wall)):
        values = np.array(evaluate(policy, partial(Envs, ENV), episodes, seed=0)["coverages"])
        print(
            f"{name},{len(values)},{values.mean():.4f},{values.std(ddof=1) / len(values) ** 0.5:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
