"""The suites: which runs make each table. Constants only; `critex suite show NAME` prints them as commands."""

from __future__ import annotations

from itertools import product

from critex.algorithms import ALGORITHMS
from critex.errors import unknown
from critex.explorers import EXPLORERS
from critex.suite.suite import Method, Suite, Task

MUJOCO = tuple(f"{name}-v4" for name in ("Swimmer", "Hopper", "Walker2d", "Ant", "HalfCheetah", "Humanoid"))
SEEDS = (1, 2, 3, 4, 5)

# DeepSea-N: (N, hidden units). A linear bandit tells apart at most d features, so φ needs more dimensions than there
# are cells to reach, N(N + 1)/2 of them.
SEAS = ((6, 128), (8, 128), (10, 128), (12, 256), (14, 256), (16, 512), (20, 512), (24, 512))
GREEDY = "--epsilon-start 0 --epsilon-end 0"
UCB = (
    "--bonus-in value --alpha 0.05 --bonus.embedding block --bonus.phi-norm 10 --bonus.scaling none "
    f"--bonus.rebuild-every {{period}} {GREEDY}"
)

MULTI_ROOM, DOOR_KEY, KEY_CORRIDOR = (
    *("MiniGrid-MultiRoom-N4-S5-v1", "MiniGrid-DoorKey-8x8-v0", "MiniGrid-KeyCorridorS3R3-v0"),
)
# One thing changed at a time; the preset scales the bonus, squares it and forgets with each episode.
CAE_VARIANTS = {
    "root": "--bonus.strategy ucb",
    "thompson": "--bonus.strategy thompson",
    "unscaled": "--bonus.scaling none",
    "lifelong": "--bonus.scope lifelong",
}

# The smallest run that still trains, for each algorithm.
SMOKE = {
    "dqn": "--learning-starts 100",
    "dsac": "--learning-starts 200 --steps-per-update 4 --eval-every 300 --eval-episodes 1",
    "ppo": "--rollout 200 --minibatches 4",
    "ppo_recurrent": "--rollout 75 --num-envs 4 --hidden 32 --core-width 32",
    "sac": "--learning-starts 200",
    "td3": "--learning-starts 200",
}
DISCRETE = ("dqn", "impala", "ppo_recurrent")

_SUITES = (
    Suite(
        "mujoco-v4",
        "Table 3: PPO, TD3 and SAC with and without CAE on MuJoCo",
        tasks=tuple(map(Task, MUJOCO)),
        methods=(
            *(Method(a, e) for a, e in product(("ppo", "td3", "sac"), ("none", "cae"))),
            Method("ppo", "cae", "before", "--normalize-bonus"),  # β joins r before the reward normaliser
        ),
        seeds=SEEDS,
        preset="paper",
        paper="mujoco-v4",
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
        "deepsea",
        "How deep a sea DQN crosses, with ε-greedy, with CAE, and with counts as the oracle",
        tasks=tuple(
            Task(f"DeepSea-{n}-v0", 2000 * n, f"--hidden {width}", period=20 * n) for n, width in SEAS
        ),
        methods=(
            Method("dqn", flags="--epsilon-start 1 --epsilon-end 0.01 --epsilon-fraction 0.1"),
            Method("dqn", "cae", flags=UCB),
            Method("dqn", "cae", "thompson", f"{UCB} --bonus.strategy thompson"),
            Method("dqn", "counts", flags=f"--bonus-in value --alpha 0.2 --bonus.of state_action {GREEDY}"),
        ),
        seeds=SEEDS,
        flags=(
            "--learning-rate 1e-3 --batch-size 64 --buffer-size 100000 --learning-starts 64 --train-every 1 "
            "--target-every 20 --eval-every {period} --eval-episodes 1 --stop-return 0.9"
        ),
        score="evaluations",
    ),
    Suite(
        "minigrid",
        "PPO with eight ways to explore on MiniGrid, and on one task what CAE is without each of its parts",
        tasks=(Task(MULTI_ROOM, 300_000), Task(DOOR_KEY, 1_000_000), Task(KEY_CORRIDOR, 1_000_000)),
        methods=(
            *(Method("ppo", e) for e in "none cae cae_plus e3b rnd icm ride noveld".split()),
            *(Method("ppo", "cae", v, flags, (MULTI_ROOM,)) for v, flags in CAE_VARIANTS.items()),
            Method("ppo", "cae_plus", "no-u", "--bonus.no-use-u", (MULTI_ROOM,)),
        ),
        seeds=(1, 2, 3),
        preset="minigrid",
    ),
    Suite(
        "smoke",
        "Every algorithm with every explorer, for a moment: does it all work here?",
        tasks=(Task("CartPole-v1", 600), Task("Pendulum-v1", 600)),
        methods=tuple(
            Method(a, e, flags=SMOKE.get(a, ""), tasks=("CartPole-v1" if a in DISCRETE else "Pendulum-v1",))
            for a, e in product(ALGORITHMS, EXPLORERS)
        ),
        seeds=(1,),
        flags="--log-every 100",
    ),
)

# Reward-free exploration through a camera. Equal α for all, the paper's for Habitat; small enough for two cores.
VISUAL = Suite(
    "visual",
    "Table 6's setting on ViZDoom: how much of unseen levels is discovered without any reward",
    tasks=(Task("VizdoomExplore-train-v0?resolution=40x30", 200_000),),
    methods=tuple(Method("ppo_recurrent", e) for e in "none cae cae_plus e3b rnd icm noveld".split()),
    seeds=(1, 2),
    flags=(
        "--eval-env VizdoomExplore-test-v0?resolution=40x30 --eval-every 100000 --eval-episodes 32 --num-envs 8 "
        "--epochs 2 --alpha 0.1"
    ),
    score="evaluations",
)

SUITES: dict[str, Suite] = {suite.name: suite for suite in (*_SUITES, VISUAL)}


def suite_named(name: str) -> Suite:
    """The suite of that name; a `UserError` with the near matches where there is none."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name]
