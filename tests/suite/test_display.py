"""What the launcher tells: states, progress, and when it will be done."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from critex.suite import Job
from critex.suite import display as module
from critex.suite.display import Board, LogLines, display, seconds_left
from critex.suite.jobs import Progress


def job(name: str, algorithm: str = "sac", steps: int = 100) -> Job:
    return Job(name, Path(name), (algorithm,), steps)


def at(run: Job, step: int, seconds: float) -> None:
    """Write the metrics of a run at that point, its last line half written."""
    run.out.mkdir(parents=True, exist_ok=True)
    line = {"kind": "episode", "step": step, "time": seconds, "return": 1.5}
    (run.out / "metrics.jsonl").write_text(json.dumps(line) + '\n{"kind": "epis')


def test_time_left_is_taken_from_the_nearest_kin() -> None:
    seed1, seed2 = job("Ant/sac/seed-1"), job("Ant/sac/seed-2")
    cousin, stranger = job("Hopper/sac/seed-1"), job("Ant/ppo/seed-1", "ppo")
    assert seconds_left({seed1: Progress()}, {seed1: Progress()}, 1) is None
    known = {seed1: Progress(50, 100.0), cousin: Progress(50, 200.0)}  # 2 and 4 seconds a step
    assert seconds_left({seed2: Progress()}, known, 1) == 200.0  # as its other seed
    assert seconds_left({job("Swimmer/sac/seed-1"): Progress()}, known, 1) == 300.0  # as all of SAC
    assert seconds_left({stranger: Progress()}, known, 1) == 300.0  # as anything
    assert (
        seconds_left({seed2: Progress(), seed1: known[seed1]}, known, 2) == 200.0
    )  # no shorter than the longest
    assert seconds_left({seed2: Progress(), stranger: Progress()}, known, 2) == 300.0
    assert seconds_left({seed2: Progress(), stranger: Progress()}, known, 1) == 500.0
    assert seconds_left({}, known, 2) == 0.0


def test_a_row_for_each_job_or_for_those_that_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = [job(f"t/m/seed-{i}") for i in range(4)]
    states = dict(zip(jobs, ("finished", "runs", "failed", "waits for its second try"), strict=True))
    at(jobs[0], 100, 50.0)
    at(jobs[1], 25, 12.5)

    def shown() -> str:
        console = Console(file=io.StringIO(), width=200)
        console.print(Board("mine", jobs, 2).table(states))
        return console.file.getvalue()  # type: ignore[attr-defined]

    text = shown()
    assert "mine: 1 of 4 finished, 1 run, 1 wait, 1 failed · ETA 0:50" in text
    (row,) = (line for line in text.splitlines() if "seed-1" in line)
    assert "25 / 100" in row and "1.5" in row and "0:38" in row
    assert "seed-3" in text
    monkeypatch.setattr(module, "ROWS", 3)
    text = shown()
    assert "seed-3" not in text and "seed-0" not in text and "seed-1" in text and "seed-2" in text
    states = dict.fromkeys(jobs, "waits")
    assert len(shown().split("\n")) == 2  # the title, no empty frame


def test_lines_for_a_log_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    clock = 0.0
    monkeypatch.setattr("critex.suite.display.time.monotonic", lambda: clock)
    first, second, before = job("a"), job("b"), job("c")
    at(second, 30, 30.0)
    at(before, 100, 100.0)
    (before.out / "card.json").touch()
    with display("mine", [first, second, before], 2) as show:
        assert isinstance(show, LogLines)
        rest = {before: "finished"}
        show({first: "runs", second: "runs", **rest})
        show({first: "finished", second: "runs", **rest})
        clock = 25.0
        show({first: "finished", second: "runs", **rest})
        show({first: "finished", second: "failed", **rest})
    assert capsys.readouterr().out.splitlines() == [
        "mine: 1 of 3 were already finished",
        "mine: a finished (2 of 3)",
        "mine: 2 of 3 finished, 1 run · ETA 1:10 · b 30%",
        "mine: b failed (3 of 3)",
    ]


def test_the_start_up_of_short_runs_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one second that take four to start: three waiting ones take fifteen, one at a time."""
    monkeypatch.chdir(tmp_path)
    clock = 0.0
    monkeypatch.setattr("critex.suite.display.time.monotonic", lambda: clock)
    jobs = [job(f"t/m/seed-{i}") for i in range(4)]
    board = Board("mine", jobs, 1)
    waiting = dict.fromkeys(jobs, "waits")
    board.progress({**waiting, jobs[0]: "runs"})
    clock = 5.0
    at(jobs[0], 100, 1.0)
    states = {**waiting, jobs[0]: "finished"}
    assert "ETA 0:15" in board.summary(states, board.progress(states))


@pytest.mark.parametrize("width", [60, 72, 80, 120])
def test_no_column_is_lost_on_a_narrow_terminal(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = [job("HalfCheetah-v4/sac+cae/seed-1", steps=1_000_000)]
    at(jobs[0], 250_000, 5_000.0)
    console = Console(file=io.StringIO(), width=width)
    console.print(Board("mine", jobs, 2).table({jobs[0]: "runs"}, width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    for word in ("steps/s", "return", "state", "4:10:00", "runs", "50"):
        assert word in text


def test_the_cursor_rests_on_an_empty_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the terminal's echo of Ctrl-C wraps after a full row, and tears the table."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    wide = job("t/m/" + "x" * 80)
    with display("mine", [wide], 1) as show:
        show({wide: "waits"})
        drawn = terminal.getvalue()
    assert "┘" in drawn and drawn.rpartition("┘")[2].strip(" ") == "\n"
