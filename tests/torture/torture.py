"""Attack critex and count what does not hold: `python tests/torture/torture.py [--scale 1] [--seed 0] [--out DIR]`.

Five attacks, each a generator of (trial, failure or ""): random kills, damaged and crafted files, a full disk, bad
command lines, hostile arrays. Every command runs in a forked child, so torch is imported once. A scale of 1 takes
minutes, 100 hours.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from critex.bonus import Gram
from critex.cli import main
from critex.run import TIMING_FIELDS, read_metrics

Trials = Iterator[tuple[str, str]]
COMMON = "--steps 400 --log-every 50 --checkpoint-every 100 --eval-every 200 --eval-episodes 1 --no-tensorboard --no-progress"
DISCRETE = ("CartPole-v1", "DeepSea-5-v0", "RiverSwim-6-v0", "MiniGrid-Empty-5x5-v0")
CONTINUOUS = ("Pendulum-v1", "Swimmer-v4")
ALGORITHMS = {
    "dqn": (DISCRETE, "--learning-starts 50 --hidden 16"),
    "ppo": ((*DISCRETE, *CONTINUOUS), "--num-envs 1 --rollout 50 --minibatches 2 --epochs 2 --hidden 16"),
    "sac": (CONTINUOUS, "--learning-starts 50 --hidden 16"),
    "td3": (CONTINUOUS, "--learning-starts 50 --hidden 16"),
    "ppo_recurrent": (
        DISCRETE,
        "--num-envs 2 --rollout 25 --minibatches 2 --epochs 2 --core-width 16 --hidden 16",
    ),
    "impala": (
        (*DISCRETE, "MiniHack-Room-5x5-v0"),
        "--num-envs 2 --unroll 25 --hidden 16",
    ),
    "dsac": (CONTINUOUS, "--learning-starts 50 --steps-per-update 10 --hidden 16"),
}
EXPLORERS = ("none", "cae", "cae_plus", "e3b", "rnd", "icm", "ride", "noveld", "e3b*noveld")


def start(args: list[str], log: Path) -> int:
    """Run a command in a child process whose output goes to `log`; its process id."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            main(args)
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        except BaseException:  # noqa: BLE001  a traceback is what the attack looks for
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return pid


def wait(pid: int, seconds: float) -> int:
    """The exit code, negative for a signal; a child that takes too long is killed, which is -9."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(args: list[str], log: Path, seconds: float = 120.0) -> tuple[int, str]:
    code = wait(start(args, log), seconds)
    return code, log.read_text(errors="replace")


def metrics(path: Path) -> list[dict]:
    return [{k: v for k, v in line.items() if k not in TIMING_FIELDS} for line in read_metrics(path)]


def one_line(code: int, output: str) -> str:
    """What is wrong with the answer to bad input, which must be one line and exit code 2."""
    lines = output.strip().splitlines()
    if code != 2 or "Traceback" in output:
        return f"exit code {code}: {lines[-1][:150] if lines else 'no output'}"
    return "" if lines and lines[-1].startswith("critex: ") else f"not one line: {output[:150]}"


def training(rng: random.Random) -> list[str]:
    """A random algorithm, environment and explorer."""
    name = rng.choice(list(ALGORITHMS))
    envs, flags = ALGORITHMS[name]
    explorer = rng.choice(EXPLORERS)
    return ["train", name, "--env", rng.choice(envs), "--explorer", explorer, *COMMON.split(), *flags.split()]


# The attacks ----------------------------------------------------------------------------------------------------


def kills(rng: random.Random, directory: Path, count: int) -> Trials:
    """SIGKILL at random moments, resumed until finished: the metrics are those of a run never killed."""
    log, killed, number = directory / "log", 0, 0
    while killed < count:
        args, number = training(rng), number + 1
        whole, path = directory / f"whole{number}", directory / f"killed{number}"
        began = time.monotonic()
        code, output = run([*args, "--out", str(whole)], log)
        duration, name = time.monotonic() - began, " ".join(args[1:6])
        if code:
            yield name, f"not killed, and yet exit code {code}: {output[-200:]}"
            killed += 1
            continue
        while not (path / "card.json").exists():
            begun = (path / "config.toml").exists()
            pid = start(["resume", str(path)] if begun else [*args, "--out", str(path)], log)
            time.sleep(rng.uniform(0.05, 0.7) * duration)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            code = wait(pid, 10)
            if code not in (0, -signal.SIGKILL):
                yield name, f"exit code {code}: {log.read_text()[-200:]}"
                break
            if code:
                killed += 1
                yield name, ""
        else:
            if metrics(path) != metrics(whole):
                yield name, "the metrics differ from those of a run never killed"
        shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(whole, ignore_errors=True)


class Payload:
    """Unpickled, it creates a file."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (self.path, "w")


def files(rng: random.Random, directory: Path, count: int) -> Trials:
    """Damage a file of a stopped run: it resumes to the same metrics, or ends in one line."""
    log, original, owned = directory / "log", directory / "original", directory / "owned"
    args = ["train", "dqn", "--env", "CartPole-v1", "--explorer", "cae", *COMMON.split(), "--hidden", "16"]
    args += ["--learning-starts", "50", "--buffer-size", "100"]
    code, output = run([*args, "--out", str(original)], log)
    assert code == 0, output
    expected = metrics(original)
    (original / "card.json").unlink()
    for _ in range(count):
        path = directory / "damaged"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(original, path)
        victim = rng.choice([p for p in sorted(path.rglob("*")) if p.is_file() and p.name != ".lock"])
        data = bytearray(victim.read_bytes())
        how = rng.choice(("flip", "cut", "fill", "delete", "link", "swap", "pickle"))
        if how == "flip" and data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            victim.write_bytes(data)
        elif how == "cut":
            victim.write_bytes(data[: rng.randrange(len(data) + 1)])
        elif how == "fill":
            victim.write_bytes(rng.randbytes(len(data)))
        elif how in ("delete", "link"):
            victim.unlink()
            if how == "link":
                victim.symlink_to("/etc/passwd")
        elif how == "swap":
            other = rng.choice([p for p in sorted(path.rglob("*")) if p.is_file()])
            victim.write_bytes(other.read_bytes())
        elif how == "pickle":
            victim.write_bytes(pickle.dumps(Payload(str(owned))))
        code, output = run(["resume", str(path)], log)
        name = f"{how} {victim.relative_to(path)}"
        if owned.exists():
            owned.unlink()
            yield name, "code from the file was executed"
        elif code == 0 and victim.name in ("config.toml", "metrics.jsonl"):
            yield name, ""  # text that still parses is an edit, which no checksum forbids
        elif code == 0:
            yield name, "" if metrics(path) == expected else "it resumed to other metrics"
        else:
            yield name, one_line(code, output)
    shutil.rmtree(original)


def disk(rng: random.Random, directory: Path, count: int) -> Trials:
    """Fill the disk (a small tmpfs for root, a limit on file sizes otherwise): one line, and a resume completes it."""
    log, place = directory / "log", directory / "disk"
    place.mkdir()
    args = [
        "train",
        "dqn",
        "--env",
        "CartPole-v1",
        "--explorer",
        "cae",
        *COMMON.split(),
        "--learning-starts",
        "50",
    ]
    for number in range(count):
        size = rng.randrange(20, 900)  # kB
        mounted = (
            os.geteuid() == 0
            and not subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(place)],
                capture_output=True,
                check=False,
            ).returncode
        )
        path = place / f"run{number}"
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        if not mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size * 100, before[1]))
        try:
            code, output = run([*args, "--out", str(path)], log)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        name = f"{'tmpfs' if mounted else 'limit'} of {size} kB"
        failure = "" if code == 0 else one_line(code, output)
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=100m", str(place)], check=True)
        if code and not failure and (path / "config.toml").exists():
            code, output = run(["resume", str(path)], log)
            failure = "" if code == 0 else f"not resumed: {output[-150:]}"
        yield name, failure
        shutil.rmtree(path, ignore_errors=True)
        if mounted:
            subprocess.run(["umount", str(place)], check=True)


NUMBERS = (
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "",
    "x",
    "0x10",
    "99999999999999999999999",
    "\x1b[31m",
    "1,5",
    "none",
)
FLAGS = (
    "seed",
    "threads",
    "log-every",
    "eval-every",
    "eval-episodes",
    "checkpoint-every",
    "checkpoint-minutes",
    "stop-return",
)
WORDS = ("", "x" * 5000, "\x1b[2J", "../..", "/", "/dev/null", "evil:CartPole-v1", "CartPole-v1?max_episode_steps=0",
         "CartPole-v1?id=1", "DeepSea-0-v0", "a:b:c", ":", "?", "CartPole-v1?render_mode=x&a=b", "🦉", "-", "--",
         "none")  # fmt: skip


def inputs(rng: random.Random, directory: Path, count: int) -> Trials:
    """Bad command lines: one line and exit code 2, in seconds."""
    log = directory / "log"
    for _ in range(count):
        out = ["--out", str(directory / "x"), "--steps", "1", "--no-tensorboard", "--no-progress"]
        kind = rng.randrange(4)
        if kind == 0:
            flag = rng.choice(FLAGS)
            bad = [n for n in NUMBERS if n != "none" or flag != "stop-return"]
            value = rng.choice([n for n in bad if n != "-1" or flag != "stop-return"])
            args = ["train", "dqn", *out, f"--{flag}={value}"]
        elif kind == 1:
            args = [
                "train",
                "dqn",
                *out,
                f"--{rng.choice(('env', 'explorer', 'preset'))}={rng.choice(WORDS[:-1])}",
            ]
        elif kind == 2:
            args = [rng.choice(("resume", "eval", "explain", "train")), rng.choice(WORDS)]
        else:
            args = [
                "".join(rng.choices("abc-=\x1b é", k=rng.randrange(1, 9))) for _ in range(rng.randrange(1, 4))
            ]
        code, output = run(args, log, 30)
        harmless = code == 0 and ("usage:" in output or kind == 1)  # help, and preset= without a name
        yield repr(args[:1] + args[-1:])[:80], "" if harmless else one_line(code, output)
        shutil.rmtree(directory / "x", ignore_errors=True)


def arrays(rng: random.Random, directory: Path, count: int) -> Trials:
    """Hostile features: the bonus of the closed form, or a ValueError that leaves the Gram as it was."""
    for _ in range(count):
        d, n = rng.randrange(1, 9), rng.randrange(0, 6)
        phi = np.random.default_rng(rng.randrange(2**32)).normal(size=(n, d))
        gram, before = Gram(d), Gram(d)
        for g in (gram, before):
            g.observe(np.ones((rng.choice((1,)), d)))
        how = rng.choice(
            (
                "plain",
                "nan",
                "inf",
                "huge",
                "tiny",
                "complex",
                "object",
                "shape",
                "text",
                "stride",
                "half",
                "sparse",
                "grad",
            )
        )
        spoiled = {"nan": np.nan, "inf": np.inf, "huge": 1e300, "tiny": 5e-324}
        value: object = phi
        if how in spoiled and phi.size:
            phi.flat[rng.randrange(phi.size)] = spoiled[how]
        elif how == "complex":
            value = torch.from_numpy(phi.astype(np.complex128))
        elif how == "object":
            value = phi.astype(object)
        elif how == "shape":
            value = rng.choice((phi[..., None], phi[:, :-1], phi.ravel()[:-1], np.float64(1.0), []))
        elif how == "text":
            value = [["1"] * d] * max(n, 1)
        elif how == "stride":
            value = np.repeat(phi, 2, axis=0)[::-2]
        elif how == "half":
            value = torch.from_numpy(phi).half()
        elif how == "sparse":
            value = torch.from_numpy(phi).to_sparse()
        elif how == "grad":
            value = torch.from_numpy(phi).requires_grad_()
        failure = ""
        try:
            bonus = gram.observe(value)  # type: ignore[arg-type]
            rows = np.asarray(value.detach() if isinstance(value, torch.Tensor) else value, dtype=np.float64)
            inverse = before.inverse()[0].numpy()
            if len(rows) and not np.isclose(float(bonus[0]), rows[0] @ inverse @ rows[0], rtol=1e-6):
                failure = f"bonus {float(bonus[0])}"
        except ValueError:
            if not torch.equal(gram.matrix(), before.matrix()):
                failure = "refused, but the Gram has changed"
        except Exception as error:  # noqa: BLE001  anything else is a failure of the trial
            failure = f"{type(error).__name__}: {error}"
        yield how, failure


ATTACKS = {  # attack: trials at scale 1
    kills: 60,
    files: 120,
    disk: 15,
    inputs: 1000,
    arrays: 5000,
}


def attack(scale: float, seed: int, names: list[str], show: bool = True) -> dict[str, tuple[int, list[str]]]:
    """Trials and failures of each attack."""
    results: dict[str, tuple[int, list[str]]] = {}
    for function, trials in ATTACKS.items():
        if names and function.__name__ not in names:
            continue
        began, done, failures = time.monotonic(), 0, list[str]()
        with tempfile.TemporaryDirectory(prefix="critex-torture-") as directory:
            for what, failure in function(
                random.Random(seed), Path(directory), max(1, round(trials * scale))
            ):
                done += 1
                if failure:
                    failures.append(f"{what}: {failure}")
        results[function.__name__] = (done, failures)
        if show:
            print(
                f"| {function.__name__:<8} | {done:>6} | {len(failures):>8} | {time.monotonic() - began:>7.0f} |",
                flush=True,
            )
    return results


def warm_up() -> None:
    """Import in this process what the children need, so that each of them starts in milliseconds."""
    for name, (envs, flags) in ALGORITHMS.items():
        for env in envs:
            with tempfile.TemporaryDirectory() as directory:
                quick = ["--steps", "100", "--no-progress", "--no-tensorboard", "--out", f"{directory}/run"]
                with Path(os.devnull).open("w") as null, contextlib.redirect_stdout(null):
                    main(["train", name, "--env", env, "--explorer", "cae", *flags.split(), *quick])


def command() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="1 takes minutes, 100 hours")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("attacks", nargs="*", help=f"a selection of: {' '.join(f.__name__ for f in ATTACKS)}")
    options = parser.parse_args()
    warm_up()
    print("| attack   | trials | failures | seconds |\n| --- | ---: | ---: | ---: |", flush=True)
    results = attack(options.scale, options.seed, options.attacks)
    failures = [f"{name}: {failure}" for name, (_, found) in results.items() for failure in found]
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(command())
