"""What does exploring cost on MiniHack? IMPALA with each explorer, one thread, side by side in one process.

    python benchmarks/minihack.py
    python benchmarks/minihack.py --network paper --only none cae cae_plus e3b --rounds 2

Every explorer has an agent and environments of its own. In each round every one of them, in turn, collects an unroll and
learns from it; the medians over the rounds are compared. The share of the bonus is its part of a whole step (collecting and
learning) of the same method; in brackets, of collecting alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table

from critex.algorithms import default_config
from critex.algorithms.impala import make_worker
from critex.run.seeding import limit_threads

RESULTS = Path(__file__).parent / "results" / "minihack.json"
EXPLORERS = ("none", "cae", "cae_plus", "e3b", "rnd", "icm", "ride", "noveld")
BUDGET = 0.03  # the most that the bonus of CAE and CAE+ may take of a step


def unrolls(explorer: str, env: str, network: str, num_envs: int, unroll: int) -> Iterator[dict[str, float]]:
    """Train for ever; first the sizes, then after each unroll the seconds of its parts."""
    cfg = default_config("impala", explorer, "official", env)
    width = 1024 if network == "paper" else 256
    cfg.network, cfg.hidden, cfg.num_envs, cfg.unroll = network, (width,), num_envs, unroll
    options = cfg.bonus
    if hasattr(options, "width"):  # an encoder of its own, of the size of the policy's
        cfg.bonus = type(options)(**{**vars(options), "width": width})
    elif hasattr(options, "u_dim"):
        cfg.bonus = type(options)(**{**vars(options), "u_dim": width // 4})
    worker = make_worker(cfg, torch.device("cpu"))
    agent = worker.agent
    yield {
        "parameters": sum(p.numel() for p in agent.network.parameters()),
        "added": sum(p.numel() for p in agent.explorer.parameters()),
    }
    while True:
        paid = agent.explorer._cost[0]
        started = perf_counter()
        batch = worker.collect()
        collected = perf_counter()
        agent.update(batch)
        yield {
            "collect": collected - started,
            "bonus": agent.explorer._cost[0] - paid,
            "learn": perf_counter() - collected,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="MiniHack-MultiRoom-N4-v0")
    parser.add_argument("--network", choices=["paper", "compact"], default="compact")
    parser.add_argument("--only", nargs="+", default=EXPLORERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--unroll", type=int, default=80)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    limit_threads(1)
    # Python puts the directory of this script first, where its name would hide the package minihack.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]

    runs = {name: unrolls(name, args.env, args.network, args.num_envs, args.unroll) for name in args.only}
    sizes = {name: next(run) for name, run in runs.items()}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for i in range(args.rounds + 1):
        for name, run in runs.items():
            taken = next(run)
            if i:  # the first one warms up
                rounds[name].append(taken)

    frames = args.num_envs * args.unroll
    table = Table(
        title=f"IMPALA on {args.env}, {args.network} network, {frames} frames an unroll, one thread"
    )
    for column in (
        "explorer",
        "parameters added",
        "frames/s",
        "bonus µs/frame",
        "bonus % of step (of collecting)",
    ):
        table.add_column(column, justify="left" if column == "explorer" else "right")
    results = {}
    for name, taken in rounds.items():
        seconds = {part: median(r[part] for r in taken) for part in ("collect", "bonus", "learn")}
        step = seconds["collect"] + seconds["learn"]
        results[name] = {
            **sizes[name],
            **seconds,
            "frames_per_second": frames / step,
            "bonus_share": seconds["bonus"] / step,
            "bonus_share_of_collecting": seconds["bonus"] / seconds["collect"],
        }
        r = results[name]
        table.add_row(
            name,
            f"{int(r['added']):,}",
            f"{r['frames_per_second']:.0f}",
            f"{1e6 * r['bonus'] / frames:.1f}",
            f"{100 * r['bonus_share']:.2f} ({100 * r['bonus_share_of_collecting']:.2f})",
        )
    Console().print(table)
    for name in ("cae", "cae_plus"):
        if name in results and results[name]["bonus_share"] > BUDGET:
            print(f"{name}: the bonus takes more than {BUDGET:.0%} of a step")
    saved = json.loads(args.out.read_text()) if args.out.exists() else {}
    saved[args.network] = {
        "env": args.env,
        "frames": frames,
        "rounds": args.rounds,
        "torch": torch.__version__,
        "explorers": results,
    }
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()
