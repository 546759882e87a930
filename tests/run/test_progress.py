from __future__ import annotations

import io
import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from critex.console import lost_output
from critex.errors import UserError
from critex.run import Run, RunConfig
from critex.run.progress import Bar, Lines, Silent, layout, make_display
from critex.run.sinks import TENSORBOARD, open_sinks, scalars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    monkeypatch.setattr("critex.run.progress.time.perf_counter", lambda: clock)
    display = make_display("a", 20_000, 0, True)
    assert isinstance(display, Lines)
    for second in range(25):
        clock = float(second)
        display.update(100 * second, 100.0, 0.5, math.nan)
    display.close()
    assert capsys.readouterr().out.splitlines() == [
        f"a: step {step:,} of 20,000 · 100 steps/s · return 0.5 (last 100 episodes) · bonus – · ETA {eta}"
        for step, eta in ((1000, "3:10"), (2000, "3:00"), (2400, "2:56"))
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    display = make_display("a", 20_000, 10, True)
    assert isinstance(display, Bar)
    display.update(1_000, 5.0, -2.5, 0.125)
    display.close()
    for piece in ("1,000/20,000", "5 steps/s", "return -2.5 (last 100)", "bonus 0.125", "ETA 1:03:20"):
        assert piece in terminal.getvalue()


@pytest.mark.parametrize("width", [60, 72, 80, 100, 200])
@pytest.mark.parametrize("name", ["a", "runs/sac-20261116-220145"])
def test_the_bar_fits_the_terminal(width: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    display = make_display(name, 1_000_000, 0, True)
    display.update(1_000_000, 1_234.0, -1234.5, 0.01234)
    display.close()
    line = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).strip().splitlines()[-1].strip()
    assert line.startswith(name[:6]) and len(line) <= width
    assert line.count("━") >= 8
    assert "1,000,000/1,000,000" in line and "ETA 0:00" in line


def test_what_is_dropped_first() -> None:
    parts = {
        "steps": "s" * 10,
        "speed": "v" * 9,
        "return": "return 1 (last 100)",
        "bonus": "b" * 8,
        "eta": "e" * 8,
    }
    assert layout(200, "a", parts)[1:] == (24, " · ".join(parts.values()))
    assert "b" * 8 not in layout(60, "a", parts)[2] and "e" * 8 in layout(60, "a", parts)[2]


def test_a_lost_reader_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    monkeypatch.setattr("critex.run.progress.LINE_SECONDS", 0.0)
    display = make_display("a", 10, 0, True)
    for show in (
        lambda: display.update(1, 1.0, 1.0, 1.0),
        lambda: display.update(2, 1.0, 1.0, 1.0),
        display.close,
    ):
        with lost_output():
            show()


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    display = make_display("a", 10, 0, False)
    assert isinstance(display, Silent)
    display.update(1, 1.0, 1.0, 1.0)
    display.close()
    assert capsys.readouterr().out == ""


def test_scalars() -> None:
    line = {"kind": "eval", "step": 3, "time": 1.0, "return": 2.0, "returns": [1.0, 3.0], "unfinished": 1}
    assert scalars(line) == {"eval/return": 2.0, "eval/unfinished": 1}


def test_tensorboard_mirrors_the_metrics_and_forgets_what_a_resumed_run_repeats(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator
    pytest.importorskip("torch.utils.tensorboard")
    for start in (0, 2):
        (sink,) = open_sinks(tmp_path, RunConfig(), {}, "id", start)
        for step in range(start + 1, start + 5):
            sink.write({"kind": "train", "step": step, "time": 0.0, "loss": float(100 * start + step)})
        sink.close()
    events = accumulator(str(tmp_path / TENSORBOARD)).Reload().Scalars("train/loss")
    assert [(event.step, event.value) for event in events] == [
        (1, 1),
        (2, 2),
        (3, 203),
        (4, 204),
        (5, 205),
        (6, 206),
    ]


def test_a_run_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert open_sinks(tmp_path, RunConfig(), {}, "id", 0) == []


def test_wandb_missing_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    options = RunConfig(out=str(tmp_path / "a"), wandb=True, tensorboard=False, progress=False)
    with pytest.raises(UserError, match=r"pip install 'critex\[wandb\]'"), Run.create("test", options) as run:
        list(run.steps(3))


def test_wandb_is_continued_under_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inits: list[dict[str, Any]] = []
    logged: list[tuple[int, dict[str, float]]] = []

    def init(**arguments: Any) -> Any:
        inits.append(arguments)
        return types.SimpleNamespace(
            log=lambda values, step: logged.append((step, values)), finish=lambda: None
        )

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))  # type: ignore[arg-type]
    options = RunConfig(
        out=str(tmp_path / "a"),
        wandb=True,
        tensorboard=False,
        progress=False,
        log_every=1,
        checkpoint_every=2,
    )
    with pytest.raises(ZeroDivisionError), Run.create("test", options) as run:
        for step in run.steps(4):
            run.log({"x": 1 / (3 - step)})
    with Run.open(tmp_path / "a", options) as run:
        run.attach()
        for _ in run.steps(4):
            run.log({"x": 5.0})
    assert [init["resume"] for init in inits] == ["allow", "allow"]
    assert inits[0]["id"] == inits[1]["id"]
    assert [(step, values["train/x"]) for step, values in logged[-1:]] == [(4, 5.0)]
