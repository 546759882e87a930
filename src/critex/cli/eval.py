"""`critex eval RUN`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from critex import ranges
from critex.cli.options import parse
from critex.errors import UserError


@dataclass
class Options(ranges.Options):
    """Play a trained agent as in the evaluations of its run, without a bonus, and print its extrinsic return."""

    run: Path
    """Directory of the run, finished or interrupted."""
    episodes: ranges.Count = 20
    """Number of episodes."""
    seed: ranges.Natural = 0
    """Seed of the environments."""
    allow_import: bool = False
    """Allow importing the module of the run's environment, as in my_module:MyEnv-v0. This executes its code."""


def main(args: list[str]) -> None:
    """Evaluate the agent and print mean and standard deviation of its return."""
    options = parse(Options, "critex eval", args)
    from statistics import fmean, stdev

    from critex.envs import Envs
    from critex.run import evaluate
    from critex.run.evaluation import MAX_EPISODE
    from critex.trained import load_trained

    trained = load_trained(options.run, allow_import=options.allow_import)
    make_envs = partial(Envs, getattr(trained.cfg, "eval_env", "") or trained.cfg.env)
    result = evaluate(trained.agent.policy, make_envs, options.episodes, options.seed)
    if not result["returns"]:
        raise UserError(
            f"no episode ended within {MAX_EPISODE:,} steps; does {trained.cfg.env} have a time limit?"
        )
    scores = {name: values for name in result if isinstance(values := result.get(f"{name}s"), list)}
    shown = [
        f"{name} {fmean(x):.4g}" + (f" ± {stdev(x):.4g}" if len(x) > 1 else "") for name, x in scores.items()
    ]
    unfinished, limit = result.get("unfinished", 0), f"{MAX_EPISODE:,} steps"
    lost = (
        f"; {unfinished} of {options.episodes} did not end within {limit} and are not counted"
        if unfinished
        else ""
    )
    count = len(result["returns"])
    played = f"over {count} episode{'s' * (count != 1)}{lost}"
    print(f"{options.run} at step {trained.step}: {', '.join(shown)} {played}")
