"""What does exploring cost on MiniHack? IMPALA with each explorer, one thread, side by side in one process.

    python benchmarks/minihack.py                                   # the compact network
    python benchmarks/minihack.py --network paper --rounds 2
    python benchmarks/minihack.py --quick                           # a minute

Every explorer has an agent and environments of its own. In each round every one of them, in turn, collects an unroll and
learns from it; the medians over the rounds are compared. The share of the bonus is its part of a whole step (collecting and
learning) of the same method; in brackets, of collecting alone. Times are those of the CPU, so that other work on the
machine matters little.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from critex.algorithms.impala import make_worker
from critex.presets import default_config
from critex.run.seeding import limit_threads

RESULTS = Path(__file__).parent / "results" / "minihack.json"
EXPLORERS = ("none", "cae", "cae_plus", "e3b", "rnd", "icm", "ride", "noveld")
BUDGET = 0.03  # the most that the bonus of CAE and CAE+ may take of a step
COLUMNS = ("explorer", "parameters added", "frames/s", "bonus µs/frame", "bonus % of step (of collecting)")


def config(explorer: str, env: str, network: str, unroll: int) -> Any:
    """The settings of the released code for the paper's network, those for a CPU for the compact one."""
    cfg = default_config("impala", explorer, "official" if network == "paper" else None, env)
    width = 1024 if network == "paper" else 256
    cfg.network, cfg.hidden, cfg.unroll = network, (width,), unroll or cfg.unroll
    if hasattr(cfg.bonus, "width"):  # an encoder of its own, of the size of the policy's
        cfg.bonus = replace(cfg.bonus, width=width)
    return cfg


def unrolls(cfg: Any) -> Iterator[dict[str, float]]:
    """Train for ever; first the sizes, then after each unroll the CPU seconds of its parts."""
    worker = make_worker(cfg, torch.device("cpu"))
    agent, paid = worker.agent, [0.0]
    compute = agent.explorer.bonus_rollout

    def timed(*args: Any) -> Any:
        started = process_time()
        bonus = compute(*args)
        paid[0] += process_time() - started
        return bonus

    agent.explorer.bonus_rollout = timed
    yield {
        "parameters": sum(p.numel() for p in agent.network.parameters()),
        "added": sum(p.numel() for p in agent.explorer.parameters()),
    }
    while True:
        paid[0], started = 0.0, process_time()
        batch = worker.collect()
        collected = process_time()
        agent.update(batch)
        yield {"collect": collected - started, "bonus": paid[0], "learn": process_time() - collected}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="MiniHack-MultiRoom-N4-v0")
    parser.add_argument("--network", choices=["paper", "compact"], default="compact")
    parser.add_argument("--only", nargs="+", default=EXPLORERS)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--unroll", type=int, default=0, help="default: that of the settings")
    parser.add_argument("--quick", action="store_true", help="three rounds; nothing is written")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    rounds = 3 if args.quick else args.rounds
    limit_threads(1)
    # Python puts the directory of this script first, where its name would hide the package minihack.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]

    configs = {name: config(name, args.env, args.network, args.unroll) for name in args.only}
    runs = {name: unrolls(cfg) for name, cfg in configs.items()}
    sizes = {name: next(run) for name, run in runs.items()}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, run in runs.items():
            parts = next(run)
            if i:  # the first one warms up
                taken[name].append(parts)

    some = next(iter(configs.values()))
    frames = some.num_envs * some.unroll
    table = Table(title=f"{args.env}, {args.network} network, {frames} frames per unroll, one thread")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "explorer" else "right")
    results = {}
    for name, each in taken.items():
        seconds = {part: median(r[part] for r in each) for part in ("collect", "bonus", "learn")}
        step = seconds["collect"] + seconds["learn"]
        results[name] = r = {
            **sizes[name],
            **seconds,
            "frames_per_second": frames / step,
            "bonus_share": seconds["bonus"] / step,
            "bonus_share_of_collecting": seconds["bonus"] / seconds["collect"],
        }
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
    if args.quick:
        return
    saved = json.loads(args.out.read_text()) if args.out.exists() else {}
    versions = {"torch": torch.__version__}
    saved[args.network] = {
        "env": args.env, "frames": frames, "rounds": rounds, **versions, "explorers": results,
    }  # fmt: skip
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()
