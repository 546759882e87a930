from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from critex.errors import UserError
from critex.run import RunConfig, from_dict, read_config, to_dict
from critex.run.record import CONFIG, git_revision, write_config


@dataclass
class Bonus:
    ridge: float = 1.0
    strategy: Literal["ucb", "thompson"] = "ucb"
    phi_norm: float | None = 10.0


@dataclass
class Config:
    env: str
    steps: int = 100
    hidden: tuple[int, ...] = (64, 64)
    pair: tuple[int, str] = (1, "a")
    names: list[str] = field(default_factory=list)
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    width: int | Literal["auto"] = "auto"
    double: bool = True
    bonus: Bonus = field(default_factory=Bonus)
    run: RunConfig = field(default_factory=RunConfig)


@dataclass
class Flat(RunConfig):
    lr: float = 1e-3


FULL = Config(
    env="DeepSea-20-v0",
    hidden=(256,),
    pair=(2, 'quote " and \\ backslash'),
    names=["α", "b"],
    env_kwargs={"size": 3, "nested": {"deep": [1, 2], "nothing": None}},
    path=Path("somewhere/else"),
    width=32,
    bonus=Bonus(ridge=1e-300, phi_norm=None),
    run=RunConfig(out="runs/a", seed=2**62),
)


def test_dictionary_and_back() -> None:
    assert from_dict(Config, to_dict(FULL)) == FULL
    assert from_dict(Flat, to_dict(Flat(seed=3, lr=0.1))) == Flat(seed=3, lr=0.1)


def test_config_file_restores_every_field_exactly(tmp_path: Path) -> None:
    # bonus.phi_norm is None where its default is 10: leaving the key out of the file would restore 10.
    write_config(tmp_path, "dqn", to_dict(FULL))
    algorithm, data = read_config(tmp_path)
    assert algorithm == "dqn"
    assert from_dict(Config, data) == FULL
    text = (tmp_path / CONFIG).read_text()
    assert "[versions]" in text
    assert 'torch = "' in text


def test_missing_keys_take_their_defaults() -> None:
    assert from_dict(Config, {"env": "a"}) == Config(env="a")
    with pytest.raises(UserError, match="'env' is missing"):
        from_dict(Config, {})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"env": "a", "stepz": 3}, "unknown config key 'stepz'; did you mean steps"),
        (
            {"env": "a", "bonus": {"rigde": 1.0}},
            r"unknown config key 'bonus.rigde'; did you mean bonus\.ridge",
        ),
        ({"env": 3}, "'env' is 3; it must be of type str"),
        ({"env": "a", "steps": 1.5}, "'steps' is 1.5; it must be of type int"),
        ({"env": "a", "steps": True}, "'steps' is True; it must be of type int"),
        ({"env": "a", "double": 1}, "'double' is 1; it must be of type bool"),
        ({"env": "a", "bonus": {"ridge": "1"}}, r"'bonus\.ridge' is '1'; it must be of type float"),
        (
            {"env": "a", "bonus": {"strategy": "uc"}},
            r"'bonus\.strategy' is 'uc'; it must be one of 'ucb', 'thompson'",
        ),
        ({"env": "a", "bonus": 3}, "'bonus' is 3; it must be of type Bonus"),
        ({"env": "a", "hidden": [64, "64"]}, r"'hidden\[1\]' is '64'; it must be of type int"),
        ({"env": "a", "pair": [1]}, r"'pair' is \[1\]; it must be of type tuple\[int, str\]"),
        ({"env": "a", "names": None}, "'names' is None; it must be of type list"),
        ({"env": "a", "width": "wide"}, "'width' is 'wide'; it must be of type int | typing.Literal"),
        ({"env": "a", "run": {"log_every": None}}, r"'run\.log_every' is None; it must be of type int"),
    ],
)
def test_wrong_keys_and_types_are_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_dict(Config, data)


def test_an_integer_will_do_for_a_float() -> None:
    ridge = from_dict(Bonus, {"ridge": 2}).ridge
    assert ridge == 2.0
    assert isinstance(ridge, float)


def test_what_no_file_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="names is of type set"):
        to_dict(Config(env="a", names={"a"}))  # type: ignore[arg-type]


def test_impossible_options_are_refused() -> None:
    with pytest.raises(UserError, match="log_every is 0; it must be at least 1"):
        RunConfig(log_every=0)
    with pytest.raises(UserError, match="checkpoint_minutes is nan; it must be a finite number"):
        RunConfig(checkpoint_minutes=float("nan"))
    with pytest.raises(UserError, match="seed is -1; it must be at least 0"):
        from_dict(RunConfig, {"seed": -1})


def test_unreadable_config_is_named(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text("algorithm = 'dqn'\nbroken =\n")
    with pytest.raises(UserError, match=r"cannot read .*config.toml: .*line 2"):
        read_config(tmp_path)
    (tmp_path / CONFIG).write_text("[config]\n")
    with pytest.raises(UserError, match=r"cannot read .*it has no 'algorithm'"):
        read_config(tmp_path)


def test_git_revision_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert git_revision() is None
