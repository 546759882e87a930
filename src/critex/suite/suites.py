"""The suites: the runs behind each table, as constants. `critex suite show NAME` prints them as commands."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

from critex.algorithms import ALGORITHMS, algorithm_module
from critex.errors import UserError, unknown
from critex.explorers import EXPLORERS
from critex.suite.suite import Method, Suite, Task

MUJOCO = tuple(f"{name}-v4" for name in ("Swimmer", "Hopper", "Walker2d", "Ant", "HalfCheetah", "Humanoid"))
SEEDS = (1, 2, 3, 4, 5)

SEAS = (6, 8, 10, 12, 14, 16, 20, 24, 30, 40, 50)

MULTI_ROOM = "MiniGrid-MultiRoom-N4-S5-v1"
# With 300,000 steps PPO alone solves KeyCorridorS3R1, and on S3R3 nearly every method fails.
MINIGRID = (
    MULTI_ROOM,
    *(f"MiniGrid-{name}-v0" for name in ("DoorKey-8x8", "KeyCorridorS3R2", "KeyCorridorS3R3")),
)
# One change at a time. The preset has a scaled, squared bonus and an episodic memory.
CAE_VARIANTS = {
    "root": "--bonus.strategy ucb",
    "thompson": "--bonus.strategy thompson",
    "unscaled": "--bonus.scaling none",
    "lifelong": "--bonus.scope lifelong",
}

MINIHACK = (
    *(f"MultiRoom-{name}" for name in ("N4", "N4-Locked", "N6", "N6-Locked", "N10-OpenDoor")),
    *("Freeze-Horn-Restricted", "Freeze-Random-Restricted", "Freeze-Wand-Restricted", "LavaCross-Restricted"),
)

MULTI_ROOM_N2, MULTI_ROOM_N4, WAND_OF_DEATH = (
    f"MiniHack-{name}-v0" for name in ("MultiRoom-N2", "MultiRoom-N4", "WoD-Easy-Restricted")
)

# The smallest run that still trains, for each of our algorithms.
SMOKE = {
    "dqn": "--learning-starts 100",
    "dsac": "--learning-starts 200 --steps-per-update 4 --eval-every 300 --eval-episodes 1",
    "impala": "--unroll 20 --num-envs 2 --hidden 16",
    "ppo": "--rollout 200 --minibatches 4",
    "ppo_recurrent": "--rollout 75 --num-envs 4 --hidden 32 --core-width 32",
    "sac": "--learning-starts 200",
    "td3": "--learning-starts 200",
}


def _smoke_envs() -> dict[str, str]:
    """The environment on which the smoke test trains each algorithm; for plug-ins, their default environment."""
    envs = {
        name: "CartPole-v1" if name in ("dqn", "impala", "ppo_recurrent") else "Pendulum-v1"
        for name in ALGORITHMS.own
    }
    for name in ALGORITHMS.added():
        with suppress(UserError):  # a plug-in that cannot be loaded must not break the suites
            envs[name] = algorithm_module(name).Config.env
    return envs


SMOKE_ENVS = _smoke_envs()

_SUITES = (
    Suite(
        "mujoco-v4",
        "Table 3: PPO, TD3 and SAC with and without CAE on MuJoCo",
        tasks=tuple(map(Task, MUJOCO)),
        methods=tuple(Method(a, e) for a, e in product(("ppo", "td3", "sac"), ("none", "cae"))),
        seeds=SEEDS,
        preset="paper",
        paper="mujoco-v4",
        version=2,
    ),
    Suite(
        "mujoco-dsac",
        "Table 4: DSAC-T with and without CAE on MuJoCo",
        tasks=tuple(map(Task, MUJOCO)),
        methods=(Method("dsac"), Method("dsac", "cae")),
        seeds=SEEDS,
        preset="paper",
        flags="--log-every 10000",
        paper="mujoco-dsac",
        score="evaluations",
    ),
    Suite(
        "mujoco-scaling-ablation",
        "SAC with CAE, with and without the scaling of the bonus (an ablation of the paper's appendix)",
        tasks=(Task("Swimmer-v4"), Task("Walker2d-v4")),
        methods=(
            Method("sac"),
            Method("sac", "cae"),
            Method("sac", "cae", "unscaled", "--bonus.scaling none"),
        ),
        seeds=SEEDS,
        preset="paper",
        paper="mujoco-v4",
    ),
    Suite(
        "mujoco-ppo-reward",
        "PPO with CAE's bonus added before the reward normaliser and after it, two readings of the paper's listing",
        tasks=tuple(map(Task, MUJOCO)),
        methods=(Method("ppo"), Method("ppo", "cae"), Method("ppo", "cae", "after", "--no-normalize-bonus")),
        seeds=(1, 2, 3),
        preset="paper",
        paper="mujoco-v4",
        version=2,
    ),
    Suite(
        "deepsea",
        "The largest DeepSea that DQN solves with ε-greedy, with CAE, with provable peers, and with counts as the oracle",
        tasks=tuple(Task(f"DeepSea-{n}-v0", 2000 * n) for n in SEAS),
        methods=(
            Method("dqn"),
            Method("dqn", "cae"),
            Method("dqn", "cae", "squared", "--bonus.strategy ucb_squared --alpha 0.02"),
            Method("dqn", "cae", "thompson", "--bonus.strategy thompson"),
            Method("dqn", "counts"),
            Method("dqn", "bdqn"),
            Method("dqn", "acb"),
            Method("dqn", "none", "langevin", "--langevin 0.1 --epsilon-start 0 --epsilon-end 0"),
        ),
        seeds=SEEDS,
        preset="deepsea",
        flags="--stop-return 0.9",
        score="evaluations",
        version=3,
    ),
    Suite(
        "minigrid",
        "PPO alone and with seven explorers on MiniGrid, and ablations of CAE and CAE+ on one task",
        tasks=tuple(Task(env, 300_000) for env in MINIGRID),
        methods=(
            *(Method("ppo", e) for e in "none cae cae_plus e3b rnd icm ride noveld".split()),
            *(Method("ppo", "cae", v, flags, (MULTI_ROOM,)) for v, flags in CAE_VARIANTS.items()),
            Method("ppo", "cae_plus", "no-u", "--bonus.no-use-u --bonus.u-dim None", (MULTI_ROOM,)),
        ),
        seeds=(1, 2, 3),
        preset="minigrid",
        version=3,
    ),
    # The paper's runs on MiniHack follow the released code: the bonus without the square root, and episodic memories.
    Suite(
        "minihack",
        "Table 5: IMPALA with E3B, CAE and CAE+ on MiniHack",
        tasks=tuple(Task(f"MiniHack-{name}-v0") for name in MINIHACK),
        methods=(Method("impala", "e3b"), Method("impala", "cae"), Method("impala", "cae_plus")),
        seeds=(1, 2, 3),
        preset="official",
        flags="--log-every 6400",
        paper="minihack",
        version=2,
    ),
    # Chance finds the goals of MultiRoom-N2 and of the wand of death. IMPALA needs more steps on the other tasks than a core
    # makes in an hour, and so does PPO on the paper's Freeze-Horn (docs/minihack.md).
    Suite(
        "minihack-cpu",
        "MiniHack on one core: PPO and IMPALA with the compact network, without a bonus and with four explorers",
        tasks=(Task(MULTI_ROOM_N4, 300_000), Task(WAND_OF_DEATH, 100_000), Task(MULTI_ROOM_N2, 150_000)),
        methods=tuple(
            Method(algorithm, explorer, flags=flags, tasks=tasks)
            for algorithm, flags, tasks in (
                ("ppo", "--log-every 4096", (MULTI_ROOM_N4, WAND_OF_DEATH)),
                ("impala", "--log-every 3200 --network compact", (MULTI_ROOM_N2,)),
            )
            for explorer in ("none", "cae", "cae_plus", "e3b", "noveld")
        ),
        seeds=(1, 2),
        version=2,
    ),
    # Reward-free exploration through a camera. One α and one scaling for all: the bonus is divided by its running standard
    # deviation, and the advantages, which compact.toml normalises, make PPO's step independent of what scale is left. All
    # runs of a seed are evaluated on the same episodes.
    Suite(
        "visual",
        "The setting of Table 6 on ViZDoom: how much of unseen levels is discovered without any reward",
        tasks=(Task("VizdoomExplore-train-v0?resolution=40x30", 81_920),),
        methods=(
            Method("reference", variant="random", flags="--policy random"),
            Method("reference", variant="wall", flags="--policy wall"),
            Method("ppo_recurrent", flags="--no-normalize-advantage"),  # its advantages are all noise
            *(
                Method("ppo_recurrent", e, flags="--alpha 0.1 --bonus.scaling welford")
                for e in "cae cae_plus e3b rnd icm noveld".split()
            ),
        ),
        seeds=(1, 2),
        flags="--eval-env VizdoomExplore-test-v0?resolution=40x30 --eval-every 40960 --eval-episodes 30",
        score="evaluations",
        measure="coverage",
        beside="habitat",
        version=2,
    ),
    # The paper's runs. They need Habitat and GPUs, and were never run here. Evaluations after whole rollouts of 2,048 steps.
    Suite(
        "habitat",
        "Table 6: recurrent PPO with E3B, CAE and CAE+ on Habitat",
        tasks=(Task("HabitatExplore-train-v0"),),
        methods=tuple(Method("ppo_recurrent", e) for e in ("e3b", "cae", "cae_plus")),
        seeds=(1, 2, 3),
        preset="paper",
        flags="--eval-env HabitatExplore-val-v0 --eval-every 9998336 --eval-episodes 100 --log-every 100000",
        paper="habitat",
        score="evaluations",
        measure="coverage",
    ),
    # Seeds 21 and 22 were used to find the rules. SAC: `--only sac --budget 0.3`.
    Suite(
        "alpha",
        "Automatic α (--alpha auto) compared with the tuned α and no bonus; nothing is tuned per task",
        tasks=(
            *(Task(env, 1_000_000, "--preset paper") for env in ("Swimmer-v4", "Hopper-v4")),
            *(Task(MULTI_ROOM, 300_000), Task("DeepSea-14-v0", 9_800)),
        ),
        methods=tuple(
            Method(algorithm, explorer, variant, f"--alpha {variant}" if variant else "", tasks)
            for algorithm, tasks in (
                ("ppo", ("Swimmer-v4", "Hopper-v4", MULTI_ROOM)),
                *(("dqn", ("DeepSea-14-v0",)), ("sac", ("Swimmer-v4",))),
            )
            for explorer, variant in (("none", ""), ("cae", ""), ("cae", "auto"), ("cae", "auto_decay"))
        ),
        seeds=(1, 2, 3),
        version=2,
    ),
    Suite(
        "smoke",
        "Every algorithm with every explorer, for a moment: does it all work here?",
        tasks=tuple(Task(env, 600) for env in sorted({"CartPole-v1", "Pendulum-v1", *SMOKE_ENVS.values()})),
        methods=tuple(
            Method(a, e, flags=SMOKE.get(a, ""), tasks=(SMOKE_ENVS[a],))
            for a, e in product(SMOKE_ENVS, EXPLORERS)
            if e != "bdqn" or SMOKE_ENVS[a] != "Pendulum-v1"  # a posterior for each action
        ),
        seeds=(1,),
        flags="--log-every 100",
    ),
)

SUITES: dict[str, Suite] = {suite.name: suite for suite in _SUITES}


def suite_named(name: str) -> Suite:
    """The suite of that name; a `UserError` with near matches if there is none."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name]
