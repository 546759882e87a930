"""`critex demo`: DQN with and without CAE on a DeepSea where ε-greedy fails. Settings: presets/deepsea.toml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from critex.suite import Job

SIZE = 14
EPISODES = 300

# All methods share the network, the learner and the budget.
SHARED = (
    f"--env DeepSea-{SIZE}-v0 --steps {SIZE * EPISODES} --log-every {5 * SIZE} --eval-every {10 * SIZE} "
    "--checkpoint-every 0"
)
ABOUT = (
    f"DeepSea is a grid of {SIZE} × {SIZE} cells. The agent starts at the top left. Each step goes down one row, to the left "
    "or right. A treasure worth 1 lies at the bottom right, and every step to the right costs a little, so only one of "
    f"2^{SIZE} action sequences pays, with a return of 0.99, and all others teach the agent to go left. ε-greedy DQN "
    "stays near the left edge and scores about 0. With CAE, the critic's own features tell which cells are new, and the "
    "same DQN explores them systematically: with UCB it finds the treasure about halfway through these "
    f"{EPISODES} episodes and scores 0.99; Thompson sampling takes longer, and a seed may need more episodes than that. "
    "Compare the heat maps of visited cells. Conclude that directed exploration makes the difference here, and no more: "
    "this is one task, chosen because undirected exploration fails on it."
)
METHODS = {
    "dqn (ε-greedy)": "--explorer none",
    "dqn+cae (UCB)": "--explorer cae",
    "dqn+cae (Thompson)": "--explorer cae --bonus.strategy thompson",
}


def demo_jobs(out: Path, seeds: Sequence[int]) -> list[Job]:
    """One run for each method and seed; every method gets its first seed before any gets its second."""
    return [
        Job(
            f"{label}, seed {seed}",
            out / "runs" / f"{slug(label)}-{seed}",
            train_arguments(flags, seed),
            SIZE * EPISODES,
        )
        for seed in seeds
        for label, flags in METHODS.items()
    ]


def train_arguments(flags: str, seed: int) -> tuple[str, ...]:
    """The arguments of `critex train` for one method and seed."""
    return ("dqn", *SHARED.split(), *flags.split(), "--seed", str(seed))


def slug(label: str) -> str:
    """The label as a directory name."""
    return re.sub("[^a-z0-9]", "-", label.replace("ε", "e").lower()).strip("-")
