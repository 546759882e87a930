"""How fast is IMPALA? Frames per second against PPO and the floor, and with workers.

    python benchmarks/impala.py
    python benchmarks/impala.py --workers 1 2 4 --rounds 20 --env MiniHack-MultiRoom-N4-v0
    python benchmarks/impala.py --quick                             # two minutes

In process, contestants take turns, an unroll of the same size each, and the medians of their CPU times are compared. The floor
is what cannot be avoided: the environments with random actions, and the network (acting on every frame, one pass forward and
back over the unroll), with nothing around them. PPO learns from the same unrolls in one pass. Runs with workers come
afterwards, one number of workers at a time, by the clock on the wall. One thread per process.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from critex.algorithms.impala import make_worker
from critex.algorithms.ppo import PPO
from critex.algorithms.ray_workers import RayWorkers
from critex.data import Rollout
from critex.envs import Envs
from critex.presets import default_config
from critex.run.seeding import limit_threads

RESULTS = Path(__file__).parent / "results" / "impala.json"
CPU = torch.device("cpu")


def impala(cfg: Any) -> Iterator[None]:
    """One unroll and one update at a time, in process."""
    worker = make_worker(cfg, CPU)
    while True:
        worker.agent.update(worker.collect())
        yield


def environments(cfg: Any) -> Iterator[None]:
    """The environments alone, with random actions."""
    envs = Envs(cfg.env, cfg.num_envs, 0)
    while True:
        for action in torch.randint(int(envs.action_space.n), (cfg.unroll, cfg.num_envs)):  # type: ignore[attr-defined]
            envs.step(action)
        yield


def network(cfg: Any) -> Iterator[None]:
    """The arithmetic alone: acting on every frame, and an update from an unroll collected once."""
    worker = make_worker(cfg, CPU)
    agent, unroll, n = worker.agent, worker.collect(), cfg.num_envs
    obs, start, state = worker.envs.obs, torch.zeros(n, dtype=torch.bool), agent.network.initial_state(n)
    noise = agent.noise(n)
    while True:
        for _ in range(cfg.unroll):
            agent.act(obs, start, state, noise)
        agent.update(unroll)
        yield


def ppo(impala: Any) -> Iterator[None]:
    """PPO with the same environments and unrolls: one pass in one minibatch."""
    cfg = default_config("ppo", "none", None, impala.env)
    cfg.num_envs, cfg.rollout, cfg.epochs, cfg.minibatches = impala.num_envs, impala.unroll, 1, 1
    envs = Envs(cfg.env, cfg.num_envs, 0)
    agent = PPO(cfg, envs.observation_space, envs.action_space, CPU)
    rollout, obs = Rollout(), envs.obs
    while True:
        with torch.no_grad():
            for noise in agent.actor.noise(cfg.rollout, cfg.num_envs, generator=agent.generator):
                transition, obs = envs.step(agent.act(obs, noise))
                rollout.add(transition)
            batch, _ = rollout.stack()
            phi = agent.critic.embed(batch.obs)
        agent.update(batch, phi, obs)
        yield


def with_workers(cfg: Any, updates: int, warm_up: int = 2) -> dict[str, float]:
    """Frames per second with `cfg.workers` workers, the share of time that the learner waits, the mean policy lag."""
    agent = make_worker(cfg, CPU).agent
    workers = RayWorkers(cfg, agent)
    lags, waited, started = list[float](), 0.0, 0.0
    try:
        for i in range(-warm_up * cfg.workers, updates):
            if i == 0:
                lags, waited, started = [], 0.0, perf_counter()
            began = perf_counter()
            unroll = workers.collect()
            waited += perf_counter() - began
            lags.append(float(agent.update(unroll)["policy_lag"]))
        seconds = perf_counter() - started
    finally:
        workers.close()
    fps = updates * cfg.unroll * cfg.num_envs / seconds
    return {"fps": fps, "waiting": waited / seconds, "lag": sum(lags) / len(lags)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="MiniHack-MultiRoom-N4-v0")
    parser.add_argument("--explorer", default="cae")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="four rounds, no workers; nothing is written")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    rounds, counts = (4, []) if args.quick else (args.rounds, args.workers)
    limit_threads(1)
    # Python puts the directory of this script first, and Ray does so in its workers; minihack.py would hide the package.
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    sys.argv[0] = str(here.parent / "impala.py")

    cfg = default_config("impala", args.explorer, None, args.env)
    contestants = {
        "environments": environments(cfg), "network": network(cfg), "ppo": ppo(cfg), "impala": impala(cfg),
    }  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for i in range(rounds + 1):
        for name, turns in contestants.items():
            started = process_time()
            next(turns)
            if i:  # the first turn warms up
                seconds[name].append(process_time() - started)
    frames = cfg.unroll * cfg.num_envs
    taken = {name: median(each) for name, each in seconds.items()}
    taken["floor"] = taken["environments"] + taken["network"]
    fps = {name: frames / each for name, each in taken.items()}

    workers = {}
    for count in counts:
        cfg.workers = count
        workers[str(count)] = with_workers(cfg, rounds * count)

    table = Table(title=f"{args.env}, {args.explorer}, compact network, {frames} frames per unroll")
    for column in ("", "frames/s", "of the floor", "learner waits", "policy lag"):
        table.add_column(column, justify="right" if column else "left")
    for name, label in (
        ("environments", "environments alone"), ("network", "network alone"), ("floor", "floor: both"),
        ("ppo", "PPO, same unrolls"), ("impala", "IMPALA in process"),
    ):  # fmt: skip
        table.add_row(label, f"{fps[name]:.0f}", f"{fps[name] / fps['floor']:.2f}", "", "")
    for count, r in workers.items():
        table.add_row(
            f"IMPALA, {count} workers", f"{r['fps']:.0f}", "", f"{r['waiting']:.0%}", f"{r['lag']:.1f}"
        )
    Console().print(table)
    if not args.quick:
        results = {"env": args.env, "explorer": args.explorer, "frames": frames, "torch": torch.__version__}
        args.out.parent.mkdir(exist_ok=True)
        args.out.write_text(json.dumps(results | {"fps": fps, "workers": workers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
