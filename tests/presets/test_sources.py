"""The sources as data: the paper's coefficients, the released code's, and names that exist."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from itertools import product
from typing import Any

import pytest

from critex.algorithms import ALGORITHMS, algorithm_module
from critex.algorithms.impala import Config
from critex.cli.train import train_config
from critex.envs import make
from critex.errors import UserError
from critex.explorers import EXPLORERS
from critex.presets import default_config, families, presets

TASKS = ("Swimmer", "Ant", "Walker2d", "Hopper", "HalfCheetah", "Humanoid")
ALPHA = {  # the table of the paper's appendix, row by row
    "sac": (0.2, 0.7, 1.0, 0.4, 0.4, 4.0),
    "ppo": (0.1, 0.2, 0.13, 0.14, 0.5, 0.1),
    "td3": (0.1, 0.3, 0.8, 0.3, 3.7, 6.0),
    "dsac": (0.1, 1.0, 3.0, 2.0, 3.0, 4.5),
}
HORN = "MiniHack-Freeze-Horn-Restricted-v0"


def paper(algorithm: str, env: str, explorer: str = "cae") -> Any:
    return default_config(algorithm, explorer, "paper", env)


@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("algorithm", ALPHA)
@pytest.mark.parametrize("explorer", ["cae", "cae_plus"])
def test_alpha_of_the_paper(algorithm: str, version: str, explorer: str) -> None:
    got = [paper(algorithm, f"{task}-{version}", explorer).alpha for task in TASKS]
    assert got == list(ALPHA[algorithm])


def test_steps_of_the_paper() -> None:
    assert paper("sac", "Hopper-v4").steps == 1_000_000
    assert paper("ppo", "Humanoid-v5").steps == 4_000_000
    for env, updates in (("Ant-v5", 1_000_000), ("Humanoid-v4", 2_000_000)):
        cfg = paper("dsac", env)
        assert (cfg.steps - cfg.learning_starts) / cfg.steps_per_update == updates


def test_ant_has_111_dimensions_for_dsac_alone() -> None:
    pytest.importorskip("mujoco")
    assert make(paper("dsac", "Ant-v4").env).observation_space.shape == (111,)
    assert paper("sac", "Ant-v4").env == "Ant-v4"
    assert paper("dsac", "Ant-v5").env == "Ant-v5"  # has the contact forces by default
    assert paper("dsac", "Ant-v4?use_contact_forces=false").env == "Ant-v4?use_contact_forces=false"


@pytest.mark.parametrize("env", ["Reacher-v4", "Hopper-v3"])
def test_a_task_the_paper_does_not_have(env: str) -> None:
    with pytest.raises(UserError, match=f"no α for {env}.*Swimmer-v4.*Humanoid-v5"):
        paper("td3", env)


def test_elsewhere_the_paper_prints_no_alpha() -> None:
    assert paper("dqn", "CartPole-v1").alpha == algorithm_module("dqn").Config.alpha
    assert paper("ppo", "Hopper-v4", "counts").alpha == algorithm_module("ppo").Config.alpha  # tuned for CAE


# --- MiniHack ---

PAPER = {
    "strategy": "ucb", "scope": "lifelong", "zero_first": False, "scaling": "welford", "count_rows": False,
    "bias_in_bonus": True, "cross_episode_ends": False,
}  # fmt: skip
OFFICIAL = {
    "strategy": "ucb_squared", "scope": "episodic", "zero_first": True, "scaling": "batch", "count_rows": True,
    "bias_in_bonus": False, "cross_episode_ends": True,
}  # fmt: skip
SAME = {"ridge": 0.1, "u_dim": 256, "hidden": 256, "loss_coef": 1.0}


def said(explorer: str, preset: str) -> tuple[float, float | None, Any]:
    cfg = default_config("ppo", explorer, preset, HORN)
    return cfg.alpha, cfg.reward_clip, cfg.bonus


@pytest.mark.parametrize("explorer", ["cae", "cae_plus"])
def test_paper_and_official_on_minihack_differ_where_paper_and_code_do(explorer: str) -> None:
    for preset, options, alpha, clip in (
        ("paper", PAPER, 1.0, None),
        ("official", OFFICIAL, 1.0, 1.0),
        ("official_root", OFFICIAL | {"strategy": "ucb"}, 0.3, 1.0),
    ):
        got_alpha, got_clip, bonus = said(explorer, preset)
        wanted = {k: v for k, v in (options | SAME).items() if hasattr(bonus, k)}
        assert (got_alpha, got_clip) == (alpha, clip)
        assert {name: getattr(bonus, name) for name in wanted} == wanted


@pytest.mark.parametrize("preset", ["paper", "official", "official_root"])
def test_impala_has_the_papers_settings_with_its_presets(preset: str) -> None:
    """minihack.toml has others for a CPU; a preset restores those of the paper, which are the algorithm's defaults."""
    defaults, cfg = Config(), default_config("impala", "cae", preset, HORN)
    cpu = default_config("impala", "cae", None, HORN)
    for name, ours in (("num_envs", 8), ("unroll", 80), ("learning_rate", 1e-4)):
        assert getattr(cfg, name) == getattr(defaults, name) == ours != getattr(cpu, name)
    assert (cfg.network, cfg.widths) == ("paper", (1024,))  # on every device


def test_a_flag_changes_the_network_with_its_width() -> None:
    flags = ["--env", HORN, "--explorer", "cae", "--device", "cpu"]
    for own, width in (["--preset", "official", "--network", "compact"], 256), (["--network", "paper"], 1024):
        assert train_config("impala", [*flags, *own]).widths == (width,)


def test_the_network_follows_the_device_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for flags, network in ([], "paper"), (["--device=cpu"], "compact"), (["--device", "cuda"], "paper"):
        assert train_config("impala", ["--env", HORN, *flags]).network == network


@pytest.mark.parametrize("explorer", ["e3b", "rnd", "noveld", "icm", "ride"])
def test_other_methods_have_the_encoder_that_table_2_counts(explorer: str) -> None:
    widths = {p: default_config("impala", explorer, p, HORN).bonus.width for p in ("paper", "official")}
    assert widths == {"paper": 1024, "official": 1024}
    for algorithm, preset in ("impala", None), ("ppo", "official"):  # the compact network
        assert default_config(algorithm, explorer, preset, HORN).bonus.width == 128


@pytest.mark.parametrize("env", [HORN, "MiniGrid-DoorKey-8x8-v0", "CartPole-v1"])
def test_cae_and_e3b_of_the_released_code_have_the_same_alpha_and_scaling(env: str) -> None:
    cae, plus, e3b = (default_config("ppo", e, "official", env) for e in ("cae", "cae_plus", "e3b"))
    assert cae.alpha == plus.alpha == e3b.alpha == 1.0
    for cfg in (cae, plus, e3b):
        assert (cfg.bonus.scaling, cfg.bonus.count_rows, cfg.bonus.scope) == ("batch", True, "episodic")


@pytest.mark.parametrize(("env", "rows"), [(HORN, 256), ("MiniGrid-DoorKey-8x8-v0", 64), ("CartPole-v1", 64)])
def test_inverse_dynamics_of_the_released_code(env: str, rows: int) -> None:
    bonus = default_config("impala", "cae_plus", "official", env).bonus
    assert (bonus.u_dim, bonus.hidden) == (rows, 256)


@pytest.mark.parametrize(
    "alpha", [("rnd", 0.001), ("icm", 0.1), ("ride", 0.1), ("noveld", 1.0), ("e3b", 1.0)]
)
def test_alpha_of_the_rivals(alpha: tuple[str, float]) -> None:
    assert said(alpha[0], "official")[0] == said(alpha[0], "paper")[0] == alpha[1]


@pytest.mark.parametrize("explorer", ["e3b", "noveld", "e3b*noveld"])
def test_alpha_of_the_comparison_comes_with_its_scaling(explorer: str) -> None:
    """α = 1 is for the small bonuses of batch moments that count rows, and for clipped rewards."""
    for algorithm, preset in product(("ppo", "ppo_recurrent", "impala"), ("paper", "official")):
        cfg = default_config(algorithm, explorer, preset, HORN)
        bonus = (cfg.bonus.scaling, cfg.bonus.count_rows)
        assert (cfg.alpha, cfg.reward_clip, bonus) == (1.0, 1.0, ("batch", True))
    for algorithm, env in ("dqn", HORN), ("ppo", "CartPole-v1"), ("sac", "Hopper-v4"):
        assert paper(algorithm, env, explorer).alpha <= 0.1
    doors = [default_config("ppo", explorer, preset, "MiniGrid-DoorKey-8x8-v0") for preset in ("paper", None)]
    assert doors[0].alpha == doors[1].alpha and doors[0].bonus == doors[1].bonus  # the family's


# --- names ---


@pytest.mark.parametrize("source", [*families(), *presets()])
def test_every_name_in_a_source_exists(source: str) -> None:
    """Whatever a source names is an algorithm, an explorer, an option; the configs refuse what is not."""
    table = tomllib.loads((files("critex.presets") / f"{source}.toml").read_text("utf-8"))
    known = {"product", "sum", "any", *EXPLORERS}
    for section in (table, *table.get("section", ())):
        for names, entry in section.get("algorithm", {}).items():
            assert set(names.split()) <= {"any", "impala", *ALGORITHMS}
            assert {name for key in entry.get("explorer", {}) for name in key.split()} <= known
        assert {name for key in section.get("explorer", {}) for name in key.split()} <= known


HABITAT, DOOM = "HabitatExplore-train-v0", "VizdoomExplore-train-v0?resolution=40x30"


def test_the_papers_runs_on_habitat() -> None:
    cfg = default_config("ppo_recurrent", "cae_plus", "paper", HABITAT)
    network = (cfg.network, cfg.core, cfg.core_layers, cfg.core_width)
    assert network == ("resnet50", "lstm", 2, 512) and cfg.env == HABITAT
    assert (cfg.num_envs, cfg.rollout, cfg.epochs, cfg.minibatches, cfg.steps) == (16, 128, 4, 2, 100_000_000)
    assert (cfg.clip, cfg.value_coef, cfg.entropy_coef, cfg.learning_rate) == (0.2, 0.5, 0.01, 2.5e-4)
    assert (cfg.max_grad_norm, cfg.gamma, cfg.gae_lambda) == (0.2, 0.99, 0.95) and not cfg.normalize_advantage
    assert cfg.alpha == 0.1 and (cfg.bonus.u_dim, cfg.bonus.hidden) == (256, 256)
    for explorer in ("cae", "cae_plus", "e3b"):
        bonus = default_config("ppo_recurrent", explorer, "paper", HABITAT).bonus
        assert (bonus.scaling, bonus.scope, bonus.ridge, bonus.zero_first) == ("none", "episodic", 0.1, False)
    rivals = {
        e: default_config("ppo_recurrent", e, "paper", HABITAT).alpha for e in ("e3b", "rnd", "noveld", "icm")
    }
    assert rivals == {"e3b": 0.1, "rnd": 0.1, "noveld": 0.01, "icm": 0.001}
    assert default_config("ppo_recurrent", "icm", "paper", HABITAT).bonus.error == "mse"
    for env, linear in (HABITAT, True), (HORN, False):  # p and t of E3B's authors
        assert default_config("ppo_recurrent", "rnd", "paper", env).bonus.linear is linear


def test_the_papers_network_on_doom_gets_its_four_sensors() -> None:
    cfg = default_config("ppo_recurrent", "cae", "paper", "VizdoomExplore-train-v0")
    assert cfg.network == "resnet50" and "sensors=habitat" in cfg.env


def test_compact_is_the_default_with_a_camera() -> None:
    plain, named = (default_config("ppo_recurrent", "cae", preset, DOOM) for preset in (None, "compact"))
    assert (plain.network, plain.core_layers, plain.num_envs, plain.env) == ("compact", 1, 8, DOOM)
    assert plain.bonus == named.bonus and plain.bonus.scope == "episodic"
    alphas = {
        e: default_config("ppo_recurrent", e, None, DOOM) for e in "cae cae_plus e3b rnd icm noveld".split()
    }
    assert {(cfg.alpha, cfg.bonus.scaling) for cfg in alphas.values()} == {(0.1, "welford")}
    with pytest.raises(UserError, match="preset compact is for the environments of its family"):
        default_config("ppo_recurrent", "cae", "compact", "CartPole-v1")
