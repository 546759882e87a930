"""`critex demo`: DQN with and without CAE on a DeepSea where ε-greedy fails. Settings: presets/deepsea.toml."""

from __future__ import annotations

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
METHODS = {
    "dqn (ε-greedy)": "--explorer none",
    "dqn+cae (UCB)": "--explorer cae",
    "dqn+cae (Thompson)": "--explorer cae --bonus.strategy thompson",
}


def demo_jobs(out: Path, seeds: Sequence[int]) -> list[Job]:
    """One run for each method and seed; the first seed of every method comes before any second."""
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
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in label.replace("ε", "e").lower()).strip(
        "-"
    )
