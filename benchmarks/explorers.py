"""What does each explorer cost? PPO on MiniGrid, 16 envs, one thread, all explorers side by side in one process.

    python benchmarks/explorers.py
    python benchmarks/explorers.py --rounds 5 --only none cae e3b

Every explorer has an agent and environments of its own. In each round every one of them, in turn, collects a rollout,
pays for it, and learns from it with the same minibatches and epochs; the medians over the rounds are compared. Shares
are parts of a whole step (collecting and learning) of PPO without explorer; in brackets, of collecting alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from critex.algorithms.ppo import PPO
from critex.data import Rollout
from critex.envs import Envs
from critex.explorers import EXPLORERS
from critex.presets import default_config

RESULTS = Path(__file__).parent / "results" / "explorers.json"
PAPER_RATIO = 17 / 22  # hours of CAE and of E3B on MiniHack, as the paper prints them


def rollouts(explorer_name: str, env: str) -> Iterator[dict[str, float]]:
    """Train PPO for ever; after each rollout the seconds of its three parts."""
    cfg = default_config("ppo", explorer_name, None, env)
    envs = Envs(env, cfg.num_envs, cfg.seed)
    agent = PPO(cfg, envs.observation_space, envs.action_space, torch.device("cpu"))
    explorer = agent.explorer
    yield {
        "parameters": sum(p.numel() for p in agent.weights),
        "added": sum(p.numel() for p in explorer.parameters()),
    }
    rollout, obs = Rollout(), envs.obs
    while True:
        started = perf_counter()
        with torch.no_grad():
            for noise in agent.actor.noise(cfg.rollout, cfg.num_envs, generator=agent.generator):
                transition, obs = envs.step(agent.act(obs, noise))
                rollout.add(transition)
            batch, _ = rollout.stack()
            phi = agent.critic.embed(batch.obs)
        collected = perf_counter()
        batch.bonus = explorer.bonus_rollout(batch, phi)
        paid = perf_counter()
        agent.update(batch, phi, obs)
        yield {
            "collect": collected - started,
            "bonus": paid - collected,
            "learn": perf_counter() - paid,
            "steps": batch.reward.numel(),
        }


def measure(names: list[str], env: str, rounds: int) -> dict[str, dict[str, float]]:
    """Median microseconds a step of each part, by explorer, the first two rounds left out."""
    runs = {name: rollouts(name, env) for name in names}
    sizes = {name: next(run) for name, run in runs.items()}
    times: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for done in range(rounds + 2):
        for name, run in runs.items():
            times[name].append(next(run))
        print(f"\rround {done + 1} of {rounds + 2}", end="", flush=True)
    print()
    return {
        name: sizes[name]
        | {
            part: 1e6 * median(t[part] / t["steps"] for t in times[name][2:])
            for part in ("collect", "bonus", "learn")
        }
        for name in names
    }


def compare(parts: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Shares of the step of PPO alone."""
    none = parts["none"]
    step = none["collect"] + none["learn"]
    return {
        name: {
            "parameters_added": p["added"],
            "added_percent": 100 * p["added"] / p["parameters"],
            "bonus_percent": 100 * p["bonus"] / step,
            "bonus_percent_of_collecting": 100 * p["bonus"] / none["collect"],
            "training_percent": 100 * (p["learn"] - none["learn"]) / step,
            "total_ratio": (none["collect"] + p["bonus"] + p["learn"]) / step,
        }
        for name, p in parts.items()
    }


def show(result: dict[str, dict[str, float]]) -> None:
    """The table, and CAE against E3B."""
    table = Table(
        "explorer", "parameters added", "bonus, share of the step", "training, share", "time against none"
    )
    for name, row in result.items():
        table.add_row(
            name,
            f"{row['parameters_added']:,.0f} ({row['added_percent']:.1f}%)",
            f"{row['bonus_percent']:.1f}% ({row['bonus_percent_of_collecting']:.1f}%)",
            f"{row['training_percent']:.1f}%",
            f"{row['total_ratio']:.2f}",
        )
    Console().print(table)
    if {"cae", "e3b"} <= result.keys():
        ratio = result["cae"]["total_ratio"] / result["e3b"]["total_ratio"]
        print(f"time of CAE against E3B: {ratio:.2f} (the paper's wall clock on MiniHack: {PAPER_RATIO:.2f})")


def main() -> None:
    """Measure, print, and keep the numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="MiniGrid-MultiRoom-N4-S5-v1")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", default=list(EXPLORERS), choices=list(EXPLORERS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    names = list(dict.fromkeys(["none", *args.only]))
    parts = measure(names, args.env, args.rounds)
    result = compare(parts)
    show(result)
    record: dict[str, Any] = {"env": args.env, "rounds": args.rounds, "microseconds": parts, "shares": result}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {RESULTS}")


if __name__ == "__main__":
    main()
