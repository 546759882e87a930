"""The command line: what it does, and one clear line with exit code 2 where it cannot."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr
from importlib import import_module
from pathlib import Path

import pytest

from critex import cli
from critex.algorithms import ALGORITHMS, algorithm_module, load_config
from critex.cli import COMMANDS, main
from critex.cli.options import field_help
from critex.cli.train import train_config
from critex.errors import UserError
from critex.explorers import EXPLORERS, ExplorationConfig
from critex.presets import families, presets
from critex.run import evaluate, read_config

QUICK = "--env DeepSea-4-v0 --steps 200 --learning-starts 20 --log-every 50 --no-progress --no-tensorboard".split()


def fails(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one line on stderr of a command that must exit with 2."""
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert out == "" and err.count("\n") == 1, (out, err)
    return err


def test_train_then_eval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a"
    main(["train", "dqn", *QUICK, "--explorer", "cae", "--bonus.ridge", "0.5", "--out", str(out)])
    for name in ("config.toml", "metrics.jsonl", "card.json", "checkpoints"):
        assert (out / name).exists()
    card = json.loads((out / "card.json").read_text())
    assert card["parameters_added"] == 0 and card["bonus_us_per_step"] > 0
    name, data = read_config(out)
    assert name == "dqn" and load_config(name, data).bonus.ridge == 0.5
    capsys.readouterr()
    main(["eval", str(out), "--episodes", "3"])
    assert "over 3 episodes" in capsys.readouterr().out
    main(["eval", str(out), "--episodes", "1"])
    one = capsys.readouterr().out
    assert one.endswith(" over 1 episode\n") and "±" not in one
    assert "nothing to resume" in fails(capsys, "resume", str(out))
    assert "holds a finished run" in fails(capsys, "train", "dqn", *QUICK, "--out", str(out))
    monkeypatch.setattr(evaluate, "__defaults__", (2,))  # ten envs play the first ten of fifteen episodes
    main(["eval", str(out), "--episodes", "15"])
    printed = capsys.readouterr().out
    assert "over 10 episodes; 5 of 15 did not end within 100,000 steps and are not counted" in printed
    monkeypatch.setattr(evaluate, "__defaults__", (0,))  # steps before an evaluation gives up
    assert "no episode ended" in fails(capsys, "eval", str(out))


def test_every_resolved_field_survives_the_config_file(tmp_path: Path) -> None:
    out = tmp_path / "a"
    flags = [*QUICK, "--out", str(out), "--explorer", "cae_plus", "--bonus.u-dim", "3", "--hidden", "8", "5"]
    main(["train", "dqn", *flags])
    assert load_config(*read_config(out)) == train_config("dqn", flags)


def test_precedence_of_preset_and_flag() -> None:
    cfg = train_config("dqn", ["--explorer", "cae_plus", "--preset", "official", "--bonus.ridge", "0.3"])
    assert (cfg.bonus.strategy, cfg.bonus.scope, cfg.bonus.ridge, cfg.reward_clip) == (
        "ucb_squared",
        "episodic",
        0.3,
        1.0,
    )
    assert train_config("dqn", ["--explorer=cae"]).bonus.strategy == "ucb"
    assert train_config(
        "dqn", ["--explorer", "none", "--explorer", "cae_plus"]
    ).bonus.use_u  # the last counts


def test_none_is_written_as_the_help_writes_it() -> None:
    flags = ["--explorer", "cae_plus", "--preset", "official"]
    assert train_config("dqn", flags).reward_clip == 1.0
    assert train_config("dqn", [*flags, "--reward-clip", "none"]).reward_clip is None
    assert train_config("dqn", [*flags, "--reward_clip=none", "--bonus.u-dim", "None"]).reward_clip is None
    assert train_config("dqn", [*flags, "--bonus.scaling", "none"]).bonus.scaling == "none"
    assert train_config("ppo", ["--shared", "none"]).shared is None
    with pytest.raises(UserError, match=r"^--reward-clip takes none\|FLOAT, not 'off'"):
        train_config("dqn", [*flags, "--reward-clip", "off"])


def test_whole_numbers_may_have_an_exponent() -> None:
    cfg = train_config("dqn", ["--steps", "1e6", "--log_every=2.5E3", "--learning-rate", "1e-3"])
    assert (cfg.steps, cfg.log_every, cfg.learning_rate) == (1_000_000, 2_500, 0.001)
    for value in ("1.5e0", "1.2.3e4", "1e999", "e3"):
        with pytest.raises(UserError, match=f"^--steps takes a whole number, not {value}"):
            train_config("dqn", ["--steps", value])


def test_an_option_without_effect_is_accepted_from_a_preset_and_in_a_sweep() -> None:
    assert train_config("dqn", ["--explorer", "none", "--alpha", "2", "--stop-return", "none"]).alpha == 2
    flags = ["--explorer", "cae", "--preset", "official", "--bonus.scaling", "welford"]
    assert train_config("ppo", flags).bonus.count_rows
    flags = ["--env", "Hopper-v4", "--explorer", "cae", "--preset", "paper", "--no-normalize-reward"]
    assert train_config("ppo", flags).normalize_bonus


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["trian"], "did you mean train"),
        (["train", "sac", "--alfa", "1"], "unknown option --alfa; did you mean --alpha?"),
        (["train", "dqn", "--explorer", "cae", "--ridge", "1"], "did you mean --bonus.ridge?"),
        (["train", "dqn", "--explorer", "cae", "--rige", "1"], "did you mean --bonus.ridge?"),
        (["train", "dqn", "--rige", "1"], "did you mean --bonus.ridge with --explorer cae?"),
        (["train", "dqn", "--bonus.u_dim", "9"], "did you mean --bonus.u-dim with --explorer cae_plus?"),
        (["train", "dqn", "--explorer", "cae", "--bonus.memory", "x"], "unknown option --bonus.memory (see"),
        (["train", "dqn", "--explorer", "cae*cae", "--bonus.first.rigde", "1"], "mean --bonus.first.ridge?"),
        (["train", "dqn", "-env", "CartPole-v1"], "unknown option -env; did you mean --env?"),
        (["train", "dqn", "--hidden", "8,8"], "--hidden takes numbers separated by spaces, not '8,8' (see"),
        (["eval", "{tmp}", "{tmp}"], "unexpected: {tmp} (see"),
        (["train", "dqn", "--xyzzy"], "unknown option --xyzzy (see"),
        (
            ["train", "dqn", "--env", "no_such_module:X-v0", "--out", "{tmp}/x"],
            "the module 'no_such_module' cannot be imported",
        ),
        (["report", "{tmp}/\x1b[31mred"], "\\x1b[31mred does not exist"),
        (["train", "dqqn"], "did you mean dqn"),
        (["train", "dqn", "--stps", "3"], "did you mean --steps"),
        (["train", "dqn", "--steps", "1e-3"], "critex: --steps takes a whole number, not 1e-3 (see"),
        (["train", "dqn", "--gamma", "many"], "critex: --gamma takes a number, not many (see"),
        (["train", "ppo", "--no-shared"], "unknown option --no-shared; did you mean --shared?"),
        (["train", "dqn", "--steps", "0"], "critex: steps is 0; it must be at least 1"),
        (["train", "dqn", "--learning-rate", "-1"], "learning_rate is -1"),
        (["train", "dqn", "--hidden", "0"], "hidden is 0; it must be at least 1"),
        (["train", "dqn", "--explorer", "cae", "--bonus.warmup", "-1"], "critex: warmup is -1"),
        (
            [
                "train",
                "dqn",
                "--explorer",
                "cae",
                "--bonus-in",
                "value",
                "--bonus.embedding",
                "next_state",
                "--out",
                "{tmp}/x",
            ],
            "--bonus.embedding block",
        ),
        (["train", "--env", "CartPole-v1"], "--env comes after the algorithm, as in critex train dqn --env"),
        (
            ["compare", "--env=CartPole-v1", "dqn"],
            "comes after the algorithm, as in critex compare dqn --env",
        ),
        (["compare", "dqqn"], "did you mean dqn"),
        (["compare", "dqn", "cae"], "unexpected: cae (see"),
        (["compare", "dqn", "--env", "CartPole-v9", "--out", "{tmp}/x"], "CartPole-v1"),
        (["compare", "sac", "--env", "CartPole-v1", "--out", "{tmp}/x"], "needs continuous actions"),
        (["compare", "dqn", "--seed", "3"], "use --seeds, as in 1-3"),
        (["compare", "dqn", "--seeds", "3-1"], "write seeds as in 1-3"),
        (["compare", "dqn", "--seeds", ","], "--seeds is ','; write seeds as in 1-3"),
        (["compare", "dqn", "--seeds", ""], "--seeds is ''; write seeds as in 1-3"),
        (["compare", "dqn", "--explorer", "none"], "name one, as in --explorer cae"),
        (["compare", "dqn", "--explorer", ""], "name one, as in --explorer cae"),
        (
            ["compare", "dqn", "--explorer=cae,rnd", "--bonus.of=next_state", "--bonus.ridge=1"],
            "unknown option --bonus.of",
        ),
        (["compare", "dqn", "--stps", "3"], "did you mean --steps"),
        (["compare", "dqn", "--explorer", "cae,rdn"], "did you mean rnd"),
        (["compare", "dqn", "--out", "{file}"], "cannot write {file}"),
        (["train", "dqn", "--alpha", "1"], "--alpha has no effect without an explorer; add --explorer cae"),
        (["train", "dqn", "--stop-return", "1"], "--stop-return has no effect without --eval-every"),
        (
            ["train", "dqn", "--stop-return=1", "--eval-every=2000", "--steps=500", "--learning-starts=9"],
            "--eval-every has no effect without more --steps, at least 2000",
        ),
        (["train", "dqn", "--preset", "paper"], "--preset has no effect without an explorer; add --explorer"),
        (["train", "dqn", "--env", "DeepSea-0-v0", "--out", "{tmp}/x"], "size of at least 2, not 0"),
        (["train", "dqn", "--recompute"], "--recompute has no effect without an explorer"),
        (["train", "dqn", "--bonus-in=value"], "--bonus-in has no effect without an explorer"),
        (
            ["train", "dqn", "--explorer=cae", "--recompute", "--alpha=auto", "--out={tmp}/x"],
            "leave recompute off",
        ),
        (
            ["train", "sac", "--env=Reacher-v4", "--explorer=cae", "--preset=paper"],
            "leave the preset out and set --alpha",
        ),
        (["train", "dqn", "--eval-episodes", "5"], "--eval-episodes has no effect without --eval-every"),
        (
            ["train", "dqn", "--env=CartPole-v1", "--explorer=cae", "--bonus.rebuild-rows=9"],
            "--bonus.rebuild-rows has no effect without --bonus.rebuild-every",
        ),
        (
            ["train", "ppo", "--normalize-bonus", "--no-normalize-reward"],
            "--normalize-bonus has no effect without --normalize-reward",
        ),
        (
            ["train", "ppo", "--explorer=cae", "--bonus.count_rows"],
            "--bonus.count-rows has no effect without --bonus.scaling batch",
        ),
        (["demo", "--out", "{file}"], "cannot write {file}"),
        (["demo", "--seeds", "3-1"], "write seeds as in 1-3"),
        (["train", "dqn", "--bonus-in", "nowhere"], "--bonus-in takes reward or value, not nowhere (see"),
        (["table", "deepsea", "--format", "html"], "takes csv, latex, markdown, none or terminal, not html"),
        (["train", "dqn", "--explorer", "cea"], "did you mean cae"),
        (["train", "dqn", "--explorer", "RND"], "did you mean rnd"),
        (["train", "dqn", "--explorer", "cae+"], "CAE+ is called cae_plus"),
        (["train", "dqn", "--explorer", "cae*"], "name two explorers, or one alone"),
        (["train", "dqn", "--explorer", "cae", "--bonus.ridge", "-1"], "ridge is -1.0; it must be above 0"),
        (["train", "dqn", "--explorer", "cae", "--preset", "papr"], "did you mean paper"),
        (["train", "dqn", "--env", "CartPol-v1", "--out", "{tmp}/x"], "did you mean CartPole-v1"),
        (["train", "dqn", "--env", "Pendulum-v1", "--out", "{tmp}/x"], "discrete actions"),
        (
            ["train", "dqn", "--explorer", "cae", "--preset", "official", "--out", "{tmp}/x"],
            "--bonus.scaling welford",
        ),
        (["resume", "{tmp}/nothing"], "does not exist"),
        (["eval", "{tmp}"], "not a run directory"),
        (["eval", "{tmp}", "--episodes", "0"], "at least 1"),
    ],
)
def test_mistakes(args: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    paths = {"{tmp}": str(tmp_path), "{file}": str(file)}
    *args, message = (re.sub("{tmp}|{file}", lambda name: paths[name[0]], text) for text in (*args, message))
    assert message in fails(capsys, *args)


def test_a_refused_run_leaves_no_directory_in_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a mistake the same --out can be used again."""
    out = str(tmp_path / "a")
    fails(capsys, "train", "dqn", "--env", "CartPol-v1", "--out", out)
    main(["train", "dqn", *QUICK, "--out", out])


@pytest.mark.parametrize("explorer, message", [("cae", "phi must be finite"), ("none", "the loss is nan")])
@pytest.mark.parametrize(
    "flags", ["dqn --steps 500 --learning-starts 100", "ppo --steps 512 --rollout 128 --minibatches 4"]
)
def test_networks_that_have_diverged_end_the_run_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, explorer: str, message: str
) -> None:
    flags += f" --env CartPole-v1 --explorer {explorer} --learning-rate 1e30 --log-every 200 --no-progress"
    error = fails(capsys, "train", *flags.split(), "--out", str(tmp_path / "run"))
    assert error.startswith(f"critex: {message}")


def test_help_lists_the_explorers_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "dqn", "--explorer", "cae_plus", "--help"])
    assert not stop.value.code
    text = capsys.readouterr().out
    assert "--bonus.u-dim" in text and "--learning-rate" in text
    main(["--help"])
    assert "resume" in capsys.readouterr().out


def test_train_needs_nothing_after_the_algorithm() -> None:
    assert train_config("sac", []) == algorithm_module("sac").Config(bonus=train_config("sac", []).bonus)


def test_help_names_every_explorer_preset_and_switch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = field_help(ExplorationConfig)
    assert all(re.search(rf"\b{name}\b", said["explorer"]) for name in EXPLORERS)
    assert all(re.search(rf"\b{name}\b", said["preset"]) for name in (*presets(), *families()))
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["help", "train", "dqn"])
    page = capsys.readouterr().out
    assert "--[no-]progress " in page and "--layer-norm " in page
    assert max(map(len, page.splitlines())) <= 80


def test_help_of_a_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The options people need come first, bookkeeping last, and no line is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["help", "train", "sac", "--explorer", "cae"])
    text = capsys.readouterr().out
    order = "--env --steps --explorer --alpha --gamma --bonus-in --bonus.ridge --checkpoint-every".split()
    places = [text.index(f"  {flag}") for flag in order]
    assert places == sorted(places)
    assert max(map(len, text.splitlines())) <= 80
    main(["help"])
    overview = capsys.readouterr().out
    assert all(f"  {name} " in overview for name in COMMANDS)
    assert max(map(len, overview.splitlines())) <= 80


MODULE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
gymnasium.register("Mine-v0", CartPoleEnv, max_episode_steps=20)
"""


def test_an_environment_in_the_current_directory(tmp_path: Path) -> None:
    """A module that the user types is imported; one that a run's config names needs --allow-import."""
    (tmp_path / "my_envs.py").write_text(MODULE)
    env = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}

    def critex(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "critex.cli", *args]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    flags = "--steps 60 --learning-starts 20 --no-progress --no-tensorboard --out run".split()
    done = critex("train", "dqn", "--env", "my_envs:Mine-v0", *flags)
    assert done.returncode == 0, done.stderr
    refused = critex("eval", "run")
    assert refused.returncode == 2 and "add --allow-import" in refused.stderr
    assert "over 2 episodes" in critex("eval", "run", "--episodes", "2", "--allow-import").stdout


def test_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command installs it, twice changes nothing, and bash completes commands, flags and values."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    (tmp_path / ".bashrc").write_text("alias a=b")
    for _ in range(2):
        main(["completion", "--shell", "bash", "--install"])
    assert "installed:" in capsys.readouterr().out
    first, line = (tmp_path / ".bashrc").read_text().splitlines()
    assert first == "alias a=b" and line.endswith("# critex completion")

    def complete(*words: str) -> list[str]:
        array = " ".join(f"'{word}'" for word in words)
        script = f"source ~/.bashrc; COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _critex; echo ${{COMPREPLY[@]}}"
        return subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=True
        ).stdout.split()

    assert complete("critex", "re") == ["resume", "report", "regret"]
    assert complete("critex", "train", "d") == ["dqn", "dsac"]
    assert complete("critex", "train", "dqn", "--bonus.rid") == ["--bonus.ridge"]
    assert "cae_plus" in complete("critex", "train", "dqn", "--explorer", "cae")
    assert complete("critex", "suite", "run", "mujoco-d") == ["mujoco-dsac"]
    assert complete("critex", "regret", "run", "riv") == ["riverswim"]
    assert complete("critex", "params", "m") == ["minihack"]
    assert complete("critex", "eval", "x", "--allow") == ["--allow-import"]


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    text = capsys.readouterr().out
    assert "DeepSea-10-v0" in text and "works" in text


def test_doctor_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(env_id: str) -> None:
        raise UserError('pip install "critex[extra]"')

    monkeypatch.setattr("critex.doctor.make", missing)
    main(["doctor"])
    assert 'pip install "critex[extra]"' in capsys.readouterr().out


def test_ctrl_c_checkpoints_and_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "a"
    command = [sys.executable, "-m", "critex.cli", "train", "dqn", "--steps", "1000000", "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--no-progress", "--no-tensorboard"], stderr=subprocess.PIPE, text=True
    )
    while not list(out.glob("checkpoints/*.ckpt")):
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1].endswith(f"resume with: critex resume {out}")
    assert max(path.name for path in (out / "checkpoints").iterdir()) > "step-000000000000.ckpt"


@pytest.mark.parametrize(("args", "message"), [(["demo"], "continues from here"), (["doctor"], "stopped")])
def test_ctrl_c_anywhere_is_one_line(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it comes as the exception, and where the launcher takes note of the signal."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def signalled(_: float) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.chdir(tmp_path)
    launch = import_module("critex.suite.launch")
    monkeypatch.setattr(launch.Launcher, "look", lambda _: True)
    monkeypatch.setattr(launch.time, "sleep", signalled)
    monkeypatch.setattr("critex.doctor.report", interrupted)
    err = io.StringIO()
    with pytest.raises(SystemExit) as stop, redirect_stderr(err):
        main(args)
    assert stop.value.code == 130
    assert message in err.getvalue() and err.getvalue().count("\n") == 1


def test_preset_paper_knows_its_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    """α and steps come from the paper's tables, a flag overrides them, and the id gets the task's options."""
    flags = ["--preset", "paper", "--explorer", "cae"]
    cfg = train_config("sac", [*flags, "--env", "Humanoid-v4"])
    assert (cfg.alpha, cfg.steps, cfg.bonus.ridge) == (4.0, 4_000_000, 1.0)
    assert train_config("sac", [*flags, "--env", "Humanoid-v4", "--alpha", "2"]).alpha == 2.0
    assert train_config("dsac", [*flags, "--env", "Ant-v4"]).env == "Ant-v4?use_contact_forces=true"
    message = fails(capsys, "train", "sac", *flags, "--env", "Reacher-v4")
    assert "Swimmer-v4" in message and "Reacher-v4" in message


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_refuses_empty_layers_and_negative_rates(
    algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "hidden is 0; it must be at least 1" in fails(capsys, "train", algorithm, "--hidden", "0")
    rate = "--critic-learning-rate" if algorithm == "sac" else "--learning-rate"
    assert "must be at least 0" in fails(capsys, "train", algorithm, rate, "-1")
