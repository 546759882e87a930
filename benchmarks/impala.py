"""How fast is IMPALA? Frames a second against workers, the share of time the learner waits, PPO, and the floor.

    python benchmarks/impala.py
    python benchmarks/impala.py --workers 0 1 2 4 --updates 20 --env MiniHack-MultiRoom-N4-v0

Every line trains for the same number of updates of one unroll each, after a few that do not count. The floor is what cannot be
avoided in one process: the environments alone, and the network alone (acting on every frame, one pass forward and back over
the unroll), with nothing around them. One thread a process.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from critex.algorithms import default_config
from critex.algorithms.impala import IMPALA, Unroll, Worker, make_worker
from critex.algorithms.ppo import PPO
from critex.algorithms.ray_workers import RayWorkers
from critex.data import Rollout
from critex.envs import Envs
from critex.explorers import Setting, make_explorer
from critex.run.seeding import limit_threads

RESULTS = Path(__file__).parent / "results" / "impala.json"
CPU = torch.device("cpu")
WARM_UP = 2


def impala(cfg: Any, updates: int) -> dict[str, float]:
    """Frames a second with cfg.workers workers, the learner's waiting share, the mean policy lag."""
    worker = make_worker(cfg, CPU)
    agent: IMPALA = worker.agent
    workers: Worker | RayWorkers = RayWorkers(cfg, agent) if cfg.workers else worker
    try:
        lags, waited, started = [], 0.0, 0.0
        for i in range(updates + WARM_UP):
            if i == WARM_UP:
                started, waited, lags = perf_counter(), 0.0, []
            began = perf_counter()
            unroll = workers.collect()
            waited += perf_counter() - began
            lags.append(float(agent.update(unroll)["policy_lag"]))
        seconds = perf_counter() - started
    finally:
        workers.close()
    frames = updates * cfg.unroll * cfg.num_envs
    return {"fps": frames / seconds, "waiting": waited / seconds, "lag": sum(lags) / len(lags)}


def ppo(env: str, num_envs: int, unroll: int, updates: int) -> dict[str, float]:
    """PPO here with the same environments and unrolls: one pass in one minibatch."""
    cfg = default_config("ppo", "none", None, env)
    cfg.num_envs, cfg.rollout, cfg.epochs, cfg.minibatches, cfg.hidden = num_envs, unroll, 1, 1, (256,)
    envs = Envs(env, num_envs, 0)
    agent = PPO(cfg, envs.observation_space, envs.action_space, CPU)
    if not hasattr(agent, "explorer"):
        agent.explorer = make_explorer(
            cfg, Setting(agent.embedding, agent.seen_space, num_envs), rollouts=True
        )
    rollout, obs, started = Rollout(), envs.obs, 0.0
    for i in range(updates + WARM_UP):
        if i == WARM_UP:
            started = perf_counter()
        with torch.no_grad():
            for noise in agent.actor.noise(unroll, num_envs, generator=agent.generator):
                transition, obs = envs.step(agent.act(obs, noise))
                rollout.add(transition)
            batch, _ = rollout.stack()
            phi = agent.critic.embed(batch.obs)
        agent.update(batch, phi, obs)
    seconds = perf_counter() - started
    envs.close()
    return {"fps": updates * unroll * num_envs / seconds}


def floor(cfg: Any, updates: int) -> dict[str, float]:
    """The environments with random actions and the network's arithmetic, each alone, and the two together."""
    worker = make_worker(cfg, CPU)
    agent, envs, n = worker.agent, worker.envs, cfg.num_envs
    unroll: Unroll = worker.collect()
    actions = torch.randint(agent.num_actions, (updates * cfg.unroll, n))
    started = perf_counter()
    for action in actions:
        envs.step(action)
    stepping = perf_counter() - started
    obs, start, state = envs.obs, torch.zeros(n, dtype=torch.bool), agent.network.initial_state(n)
    noise = agent.noise(n)
    started = perf_counter()
    for _ in range(updates * cfg.unroll):
        agent.act(obs, start, state, noise)
    for _ in range(updates):
        agent.update(unroll)
    arithmetic = perf_counter() - started
    worker.close()
    frames = updates * cfg.unroll * n
    return {
        "environments": frames / stepping,
        "network": frames / arithmetic,
        "together": frames / (stepping + arithmetic),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="MiniHack-MultiRoom-N4-v0")
    parser.add_argument("--explorer", default="cae")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--unroll", type=int, default=80)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    limit_threads(1)

    def config(workers: int) -> Any:
        cfg = default_config("impala", args.explorer, "official", args.env)
        cfg.num_envs, cfg.unroll, cfg.workers = args.num_envs, args.unroll, workers
        return cfg

    results: dict[str, Any] = {"env": args.env, "explorer": args.explorer, "torch": torch.__version__}
    results["floor"] = floor(config(0), args.updates)
    results["ppo"] = ppo(args.env, args.num_envs, args.unroll, args.updates)
    results["impala"] = {str(n): impala(config(n), args.updates) for n in args.workers}

    table = Table(title=f"IMPALA with {args.explorer} on {args.env}, {args.num_envs} envs a worker")
    for column in ("", "frames/s", "of the floor", "learner waits", "policy lag"):
        table.add_column(column, justify="right" if column else "left")
    least = results["floor"]["together"]
    for name, label in (
        ("environments", "environments alone"),
        ("network", "network alone"),
        ("together", "floor"),
    ):
        table.add_row(label, f"{results['floor'][name]:.0f}", "", "", "")
    table.add_row(
        "PPO, same unrolls", f"{results['ppo']['fps']:.0f}", f"{results['ppo']['fps'] / least:.2f}", "", ""
    )
    for n, r in results["impala"].items():
        label = "IMPALA in process" if n == "0" else f"IMPALA, {n} workers"
        table.add_row(
            label, f"{r['fps']:.0f}", f"{r['fps'] / least:.2f}", f"{r['waiting']:.0%}", f"{r['lag']:.1f}"
        )
    Console().print(table)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
