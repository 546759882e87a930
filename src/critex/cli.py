"""The command line: `critex train | resume | eval | report | demo | doctor`."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import field, fields, make_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from critex.errors import UserError, unknown

PROG = "critex"


def main(argv: list[str] | None = None) -> None:
    """Entry point: one clear line and exit code 2 for a mistake of the user."""
    args = sys.argv[1:] if argv is None else argv
    try:
        dispatch(args)
    except UserError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        print(f"{PROG}: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `critex … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def dispatch(args: list[str]) -> None:
    """Call the command that the arguments name."""
    if not args or args[0] in ("-h", "--help"):
        print(f"usage: {PROG} COMMAND [OPTIONS]\n")
        for name, command in COMMANDS.items():
            print(f"  {name:<8} {(command.__doc__ or '').splitlines()[0]}")
        print(f"\n{PROG} COMMAND --help tells more.")
    elif args[0] == "--version":
        from critex import __version__

        print(f"{PROG} {__version__}")
    elif args[0] not in COMMANDS:
        raise unknown("command", args[0], COMMANDS)
    else:
        COMMANDS[args[0]](args[1:])


def parse(target: Any, prog: str, args: list[str], **options: Any) -> Any:
    """tyro, with its error box folded into one line."""
    import tyro

    box = io.StringIO()
    try:
        with redirect_stderr(box):
            return tyro.cli(target, prog=prog, args=args, **options)
    except SystemExit as stop:
        if stop.code:
            raise UserError(_one_line(box.getvalue(), prog)) from None
        raise


def _one_line(box: str, prog: str) -> str:
    """The message in tyro's box: sections divided by rules, the title is one of them where it draws without a frame."""
    lines = [line.strip("│ ") for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    text = "\n".join("" if line.startswith(("╭", "╰")) else line for line in lines)
    sections = [" ".join(s.split()) for s in re.split(r"^[─-]{3,}$", text, flags=re.MULTILINE) if s.strip()]
    message = re.sub(r"^Error parsing \w+: ", "", sections[0 if "╭" in box else 1]).rstrip(".")
    near = re.search(r"Perhaps you meant:.*?(--[\w.-]+)", " ".join(sections))
    return f"{message}{f'; did you mean {near[1]}?' if near else ''} (see {prog} --help)"


def train(args: list[str]) -> None:
    """Train an agent: critex train ALGORITHM --env ID --explorer NAME --out DIR."""
    from critex.algorithms import ALGORITHMS, algorithm_module
    from critex.run import Run

    if not args or args[0] in ("-h", "--help"):
        print(f"usage: {PROG} train ALGORITHM [OPTIONS]\n\nalgorithms: {', '.join(ALGORITHMS)}")
        print(
            f"{PROG} train ALGORITHM --help lists the options; with --explorer NAME also those of the explorer."
        )
        return
    name = args[0]
    cfg = train_config(name, args[1:])
    with Run.create(name, cfg) as run:
        algorithm_module(name).train(cfg, run)
        print(f"finished: {run.path}")


def train_config(name: str, args: list[str]) -> Any:
    """The options of `critex train`: default < preset < flag."""
    from critex.algorithms import algorithm_module, default_config

    config = algorithm_module(name).Config
    explorer, preset, env = (_peek(args, flag) for flag in ("explorer", "preset", "env"))
    default = default_config(name, explorer or config.explorer, preset, env)
    # Which options --bonus.* there are depends on the explorer, so the type of the field is made here.
    typed = make_dataclass(
        "Config",
        [("bonus", type(default.bonus), field(default=default.bonus))],
        bases=(config,),
        kw_only=True,
    )
    values = {f.name: getattr(default, f.name) for f in fields(default)}
    parsed = parse(typed, f"{PROG} train {name}", args, default=typed(**values))
    if default.env.startswith(f"{parsed.env}?"):  # the preset completes the id with the options of its task
        parsed.env = default.env
    return config(**{f.name: getattr(parsed, f.name) for f in fields(default)})


def _peek(args: list[str], flag: str) -> str | None:
    """The value of a flag before the real parsing; the last one counts."""
    found = None
    for arg, after in zip(args, [*args[1:], None], strict=True):
        if arg == f"--{flag}":
            found = after
        elif arg.startswith(f"--{flag}="):
            found = arg.partition("=")[2]
    return found


def resume(args: list[str]) -> None:
    """Go on with a run that was interrupted: critex resume DIR."""
    from critex.algorithms import algorithm_module, load_config
    from critex.run import Run, read_config

    def options(run: Path, /) -> Path:
        """Go on with a run from its last checkpoint, exactly as if it had never stopped.

        Args:
            run: directory of the run
        """
        return run

    path = parse(options, f"{PROG} resume", args)
    name, data = read_config(path)
    cfg = load_config(name, data)
    with Run.open(path, cfg) as run:
        algorithm_module(name).train(cfg, run)
        print(f"finished: {run.path}")


def evaluate(args: list[str]) -> None:
    """Play a trained agent without any bonus: critex eval DIR --episodes 20."""
    import torch

    from critex.envs import Envs
    from critex.run import evaluate as play
    from critex.trained import load_trained

    def options(run: Path, /, episodes: int = 20, seed: int = 0) -> tuple[Path, int, int]:
        """Play a trained agent greedily, without any bonus, and print its extrinsic returns.

        Args:
            run: directory of the run
            episodes: how many episodes to play
            seed: seed of the environments
        """
        return run, episodes, seed

    path, episodes, seed = parse(options, f"{PROG} eval", args)
    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, got {episodes}")
    trained = load_trained(path)
    result = play(trained.agent.policy, partial(Envs, trained.cfg.env), episodes, seed)
    returns = torch.tensor(result["returns"], dtype=torch.float64)
    spread = returns.std().item() if len(returns) > 1 else 0.0
    print(
        f"{path} at step {trained.step}: return {returns.mean():.4g} ± {spread:.4g} over {len(returns)} episodes"
    )


def explain(args: list[str]) -> None:
    """Watch a trained agent and how new each of its steps is: critex explain DIR."""
    from critex.explain import command

    command(args, f"{PROG} explain", parse)


def doctor(args: list[str]) -> None:
    """What is installed, which environments can run here, what to install for the rest."""
    from critex.doctor import report

    def options() -> None:
        """Tell what is installed, which environments can run here, and what to install for the rest."""

    parse(options, f"{PROG} doctor", args)
    report()


def report(args: list[str]) -> None:
    """Compare runs on one page: critex report DIR DIR … --out report."""
    from critex.tables import is_suite, report_suite, show

    def options(runs: tuple[Path, ...], /, out: Path = Path("report")) -> tuple[tuple[Path, ...], Path]:
        """Write one self-contained page with learning curves, final scores, costs and configs of these runs.

        Args:
            runs: directories of runs, those that differ only in the seed being one method; or that of a suite
            out: directory of the report; its index.html is the page
        """
        return runs, out

    runs, out = parse(options, f"{PROG} report", args)
    if not any(map(is_suite, runs)):
        _report(runs, out)
    elif len(runs) > 1:
        raise UserError("a suite has a report of its own; give its directory alone")
    else:
        result, grid = report_suite(runs[0], out)
        for problem in result.problems:
            print(problem, file=sys.stderr)
        show(grid)
        print(f"report: {result.index}")


def table(args: list[str]) -> None:
    """Our scores beside the paper's: critex table NAME --runs DIR."""
    from critex.tables import command

    command(args, f"{PROG} table", parse)


def params(args: list[str]) -> None:
    """The paper's parameter table, counted in our own modules: critex params minihack."""
    from critex.params import command

    command(args, f"{PROG} params", parse)


def _report(runs: Sequence[Path], out: Path) -> None:
    from rich.console import Console

    from critex.report import score_table, write_report

    result = write_report(list(runs), out)
    for problem in result.problems:
        print(problem, file=sys.stderr)
    Console().print(score_table(result.scores))
    print(f"report: {result.index}")


def demo(args: list[str]) -> None:
    """See exploration happen: DQN with and without CAE on DeepSea, and a report."""
    from critex.demo import demo_jobs
    from critex.run.files import disk_errors
    from critex.suite import launch

    def options(out: Path = Path("demo"), seeds: int = 3, jobs: int = 2) -> tuple[Path, int, int]:
        """Train DQN with and without CAE on a DeepSea where ε-greedy fails, and write a report.

        Args:
            out: directory of the demo; called again, finished runs are kept and interrupted ones go on
            seeds: runs of each method
            jobs: runs side by side, one thread each
        """
        return out, seeds, jobs

    out, seeds, parallel = parse(options, f"{PROG} demo", args)
    if seeds < 1 or parallel < 1:
        raise UserError("--seeds and --jobs must be at least 1")
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    runs = demo_jobs(out, range(1, seeds + 1))
    failures = launch(runs, parallel, "demo")
    if failures:
        raise UserError("; ".join(map(str, failures)))
    _report([job.out for job in runs], out / "report")


def suite(args: list[str]) -> None:
    """Run all that a table of the paper needs: critex suite list | show NAME | run NAME --out DIR."""
    from critex.suite.command import main as command

    command(args, f"{PROG} suite", parse)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "report": report,
    "suite": suite,
    "table": table,
    "params": params,
    "explain": explain,
    "demo": demo,
    "doctor": doctor,
}

if __name__ == "__main__":
    main()
