"""Environment steps per second of whole training: critex, with and without CAE, against Stable-Baselines3 and SBX.

    python benchmarks/throughput.py                          # some 30 minutes on an idle core
    python benchmarks/throughput.py --algorithms ppo --envs Swimmer-v4 --rivals sb3

Same task, network sizes, batch size and ratio of updates to steps for all. Every run is a process of its own, pinned
to one core, one after the other: critex, critex+cae, sb3, sbx, again and again (`--repeats`); the medians are compared
as ratios. Time is CPU time after a warm-up that includes every compilation, so that other work on the machine weighs
little. Beside the speeds stands the floor: the time of the bare matrix products of the updates and of the bare
environment, which nothing that does the same arithmetic can beat. The rivals have no DSAC-T; ours is there for the
share of the bonus.

The rivals are installed from the package index, each into an environment of its own, under ~/.cache/critex.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "critex" / "benchmarks"
RIVALS = {"sb3": "stable-baselines3==2.9.2", "sbx": "sbx-rl==0.28.0"}
SAME = ("torch", "gymnasium", "mujoco")  # versions that the rivals share with us
EXTRA = {"gymnasium": "[mujoco]"}
PPO = {"rollout": 2048, "minibatches": 32, "epochs": 10, "hidden": 64, "batch": 64}
OFF_POLICY = {"learning_starts": 500, "hidden": 256, "batch": 256}
STEPS_PER_UPDATE = 20  # of DSAC-T
WARM = {"ppo": 2048, "sac": 600, "td3": 600, "dsac": 1500}
STEPS = {"ppo": 3 * 2048, "sac": 1200, "td3": 1200, "dsac": 4000}  # timed, after the warm-up
RIVALLED = ("ppo", "sac", "td3")


# ------------------------------------------------------------------------------------------------ one run


def run_critex(algorithm: str, env: str, warm: int, steps: int, explorer: str) -> dict[str, float]:
    import critex.explorers.base
    from critex.algorithms import algorithm_module
    from critex.presets import default_config
    from critex.run import Run

    critex.explorers.base.perf_counter = time.process_time  # the bonus by the same clock as all the rest

    class Timed(Run):
        began = 0.0

        def steps(self, total: int, per_iteration: int = 1) -> Any:
            for step in super().steps(total, per_iteration):
                if step >= warm and not self.began:
                    explorer: Any = self._parts["explorer"]
                    explorer._cost[:] = 0.0, 0.0  # its first call loads libraries
                    self.began, self.first = time.process_time(), step
                yield step
            self.seconds, self.timed = time.process_time() - self.began, self.step - self.first

    cfg = default_config(algorithm, explorer)
    quiet = {"progress": False, "tensorboard": False, "checkpoint_every": 0, "checkpoint_minutes": 0.0}
    options = {
        "env": env,
        "steps": warm + steps,
        "eval_every": 0,
        "buffer_size": 100_000,
        "steps_per_update": STEPS_PER_UPDATE,
    }
    options |= quiet | OFF_POLICY | {"hidden": cfg.hidden}
    with tempfile.TemporaryDirectory() as directory:
        for name, value in (options | {"out": directory + "/run"}).items():
            if hasattr(cfg, name):
                setattr(cfg, name, value)
        with Timed.create(algorithm, cfg) as run:
            algorithm_module(algorithm).train(cfg, run)
        card = json.loads((run.path / "card.json").read_text())
    bonus = {"bonus_us": card["bonus_us_per_step"]} if explorer != "none" else {}
    return {"steps_per_second": run.timed / run.seconds, **bonus}


def run_rival(library: str, algorithm: str, env: str, warm: int, steps: int) -> dict[str, float]:
    import gymnasium as gym
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    if library == "sb3":
        import stable_baselines3 as package
        import torch

        torch.set_num_threads(1)
    else:
        import sbx as package

    class Clock(BaseCallback):
        began = 0.0

        def _on_step(self) -> bool:
            if self.num_timesteps > warm and not self.began:
                self.began, self.first = time.process_time(), self.num_timesteps - 1
            return True

    envs: Any = DummyVecEnv([lambda: gym.make(env)])
    options: dict[str, Any] = {"device": "cpu", "seed": 1}
    if algorithm == "ppo":
        envs = VecNormalize(envs)  # ours normalises observations and rewards, too
        options |= {"n_steps": PPO["rollout"], "batch_size": PPO["batch"], "n_epochs": PPO["epochs"]}
        if library == "sb3":
            options["clip_range_vf"] = 0.2
        net_arch: Any = {"pi": [PPO["hidden"]] * 2, "vf": [PPO["hidden"]] * 2}
    else:
        options |= {"batch_size": OFF_POLICY["batch"], "learning_starts": OFF_POLICY["learning_starts"]}
        options |= {"buffer_size": 100_000, "train_freq": 1, "gradient_steps": 1}
        net_arch = [OFF_POLICY["hidden"]] * 2
    model = getattr(package, algorithm.upper())(
        "MlpPolicy", envs, policy_kwargs={"net_arch": net_arch}, **options
    )
    clock = Clock()
    model.learn(warm + steps, callback=clock)
    return {"steps_per_second": (model.num_timesteps - clock.first) / (time.process_time() - clock.began)}


# ------------------------------------------------------------------------------------------------ the floor


def products(algorithm: str, obs: int, act: int) -> list[tuple[int, int, int]]:
    """The matrix products [m, k]·[k, n] of one update of PPO or SAC, of two updates of TD3 or DSAC-T."""
    setting = PPO if algorithm == "ppo" else OFF_POLICY
    size, width = setting["batch"], setting["hidden"]

    def forward(inputs: int, outputs: int) -> list[tuple[int, int, int]]:
        sizes = [inputs, *[width] * (3 if algorithm == "dsac" else 2), outputs]
        return [(size, k, n) for k, n in pairwise(sizes)]

    def backward(
        layers: list[tuple[int, int, int]], weights: bool, inputs: bool
    ) -> list[tuple[int, int, int]]:
        to_weights = [(k, m, n) for m, k, n in layers] if weights else []
        to_inputs = [(m, n, k) for m, k, n in (layers if inputs else layers[1:])]
        return to_weights + to_inputs

    if algorithm == "ppo":
        nets = [forward(obs, act), forward(obs, 1)]
        return [p for net in nets for p in net + backward(net, weights=True, inputs=False)]
    actor = forward(obs, act if algorithm == "td3" else 2 * act)
    critic = forward(obs + act, 2 if algorithm == "dsac" else 1)
    learn_critics = actor + 2 * critic + 2 * (critic + backward(critic, weights=True, inputs=False))
    through = 1 if algorithm == "td3" else 2  # critics that the actor's loss goes through
    learn_actor = actor + backward(actor, weights=True, inputs=False)
    learn_actor += through * (critic + backward(critic, weights=False, inputs=True))
    if algorithm == "sac":
        return learn_critics + learn_actor + actor  # the temperature learns from fresh actions
    return 2 * learn_critics + learn_actor  # the actor learns at every second update


def run_floor(algorithm: str, env: str) -> dict[str, float]:
    import gymnasium as gym
    import torch

    torch.set_num_threads(1)
    task = gym.make(env)
    task.reset(seed=0)
    actions = [task.action_space.sample() for _ in range(1000)]
    began = time.process_time()
    for action in actions:
        _, _, terminated, truncated, _ = task.step(action)
        if terminated or truncated:
            task.reset()
    env_us = 1e6 * (time.process_time() - began) / len(actions)

    shapes = products(algorithm, task.observation_space.shape[0], task.action_space.shape[0])
    factors = [(torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)) for m, k, n in shapes]
    rounds = []
    for _ in range(60):
        began = time.process_time()
        for a, b, out in factors:
            torch.mm(a, b, out=out)
        rounds.append(time.process_time() - began)
    share = {"ppo": PPO["epochs"] * PPO["minibatches"] / PPO["rollout"], "sac": 1.0, "td3": 0.5}
    share["dsac"] = 0.5 / STEPS_PER_UPDATE
    products_us = 1e6 * statistics.median(rounds) * share[algorithm]  # of one environment step
    return {"env_us": env_us, "products_us": products_us, "steps_per_second": 1e6 / (env_us + products_us)}


# ------------------------------------------------------------------------------------------------ all of them


def install(name: str) -> str:
    """The Python of a rival's own environment, made at the first call."""
    home = CACHE / name
    python, stamp = home / "bin" / "python", home / "critex-requirements.txt"
    same = {package: version(package).partition("+")[0] for package in SAME}
    wanted = [RIVALS[name], *(f"{package}{EXTRA.get(package, '')}=={v}" for package, v in same.items())]
    if not stamp.exists() or stamp.read_text() != "\n".join(wanted):
        print(f"installing {' '.join(wanted)} into {home}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True)
        stamp.write_text("\n".join(wanted))
    return str(python)


def measure(python: str, core: int, **job: Any) -> dict[str, float]:
    """One run in a process of its own, on one core."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    path = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))
    xla = {
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_PLATFORMS": "cpu",
    }
    command = [python, "-W", "ignore", __file__, "--job", json.dumps(job), "--core", str(core)]
    env = os.environ | threads | xla | {"PYTHONPATH": path}
    result = subprocess.run(command, env=env, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{job} failed:\n{result.stderr[-3000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def do(job: dict[str, Any], core: int) -> None:
    """What `measure` starts."""
    os.sched_setaffinity(0, {core})
    kind = job.pop("kind")
    print(json.dumps({"critex": run_critex, "rival": run_rival, "floor": run_floor}[kind](**job)))


def compare(algorithm: str, env: str, args: argparse.Namespace, pythons: dict[str, str]) -> dict[str, Any]:
    """All contenders in turn, `repeats` times; medians and ratios."""
    core = max(os.sched_getaffinity(0))
    job = {
        "algorithm": algorithm,
        "env": env,
        "warm": WARM[algorithm],
        "steps": args.steps or STEPS[algorithm],
    }
    ours = {"kind": "critex", **job}
    contenders: dict[str, tuple[str, dict[str, Any]]] = {
        "critex": (sys.executable, {**ours, "explorer": "none"}),
        "critex+cae": (sys.executable, {**ours, "explorer": "cae"}),
    }
    for name, python in pythons.items() if algorithm in RIVALLED else ():
        contenders[name] = (python, {"kind": "rival", "library": name, **job})
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    floors = []
    for _ in range(args.repeats):
        floors.append(measure(sys.executable, core, kind="floor", algorithm=algorithm, env=env))
        for name, (python, what) in contenders.items():
            runs[name].append(measure(python, core, **what))
            print(f"  {algorithm} {env} {name}: {runs[name][-1]['steps_per_second']:.0f} steps/s", flush=True)
    speed = {
        name: statistics.median(r["steps_per_second"] for r in results) for name, results in runs.items()
    }
    floor = {key: statistics.median(f[key] for f in floors) for key in floors[0]}
    bonus_us = statistics.median(r["bonus_us"] for r in runs["critex+cae"])
    return {
        "algorithm": algorithm,
        "env": env,
        "steps_per_second": speed,
        "all": {name: [r["steps_per_second"] for r in results] for name, results in runs.items()},
        "ratio": {name: speed["critex"] / speed[name] for name in speed if name != "critex"},
        "floor": floor,
        "of_floor": speed["critex"] / floor["steps_per_second"],
        "cae_overhead": speed["critex"] / speed["critex+cae"] - 1,
        "bonus_us": bonus_us,
        "bonus_share": bonus_us * speed["critex"] / 1e6,
    }


def show(result: dict[str, Any]) -> None:
    speed, floor = result["steps_per_second"], result["floor"]
    print(f"\n{result['algorithm']} on {result['env']}: {speed['critex']:.0f} steps/s")
    for name, ratio in result["ratio"].items():
        if name != "critex+cae":
            print(f"  {ratio:5.2f} × {name} ({speed[name]:.0f} steps/s)")
    print(
        f"  {100 * result['of_floor']:.0f}% of the floor: {floor['products_us']:.0f} µs of matrix products and "
        f"{floor['env_us']:.0f} µs of environment a step"
    )
    print(
        f"  CAE: {100 * result['cae_overhead']:+.1f}% time; its bonus alone {result['bonus_us']:.0f} µs a step, "
        f"{100 * result['bonus_share']:.1f}%"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--algorithms", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--envs", nargs="+", default=["Swimmer-v4", "HalfCheetah-v4"])
    parser.add_argument("--rivals", nargs="*", default=list(RIVALS), choices=list(RIVALS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, help="timed steps of each run, after the warm-up")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "throughput.json")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        do(json.loads(args.job), args.core)
        return
    pythons = {name: install(name) for name in args.rivals}
    versions = {package: version(package) for package in SAME} | {name: RIVALS[name] for name in args.rivals}
    report: dict[str, Any] = {"repeats": args.repeats, "versions": versions, "results": []}
    for algorithm in args.algorithms:
        for env in args.envs:
            report["results"].append(compare(algorithm, env, args, pythons))
            show(report["results"][-1])
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
