"""The ledger outlives crashes in the middle of a line, and closes what nobody saw end."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from critex.suite import Job
from critex.suite.ledger import LEDGER, Ledger, read_ledger
from critex.suite.places import Began

BEGAN = Began(["train"], "node-7", 42, {"critex": "1"})


def test_cut_lines_are_skipped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    job = Job("a", tmp_path / "t" / "m" / "seed-1", ("dqn",), 1)
    Ledger(tmp_path).began(job, BEGAN)
    with (tmp_path / LEDGER).open("a") as file:
        file.write('{"time": "2')
    again = Ledger(tmp_path)
    assert again.host(job) == "node-7"
    again.ended(job, "finished")
    began, ended = read_ledger(tmp_path / LEDGER)
    assert (began["event"], began["pid"], began["versions"]) == ("began", 42, {"critex": "1"})
    assert (ended["run"], ended["host"], ended["outcome"]) == ("t/m/seed-1", "node-7", "finished")
    assert Ledger(tmp_path).host(job) is None


def test_odd_lines_are_skipped(tmp_path: Path) -> None:
    job = Job("a", tmp_path / "a", ("dqn",), 1)
    lines = (
        '{"event": "began", "run": ["a"]}',
        '{"event": "began", "run": null}',
        '{"event": "began", "run": "a"}',
        json.dumps({"event": "began", "run": "a", "host": socket.gethostname(), "pid": 10**30}),
        "[" * 5000,
    )
    (tmp_path / LEDGER).write_text("\n".join(lines))
    ledger = Ledger(tmp_path)
    assert ledger.host(job) == socket.gethostname()
    ledger.close_abandoned(job)
    assert ledger.host(job) is None
    assert [line.get("outcome") for line in read_ledger(tmp_path / LEDGER)] == [
        None,
        None,
        *["abandoned"] * 2,
    ]


def test_what_nobody_saw_end_is_closed_once(tmp_path: Path) -> None:
    lost, done = (Job(name, tmp_path / name, ("dqn",), 1) for name in ("lost", "done"))
    ledger = Ledger(tmp_path)
    for job in (lost, done):
        ledger.began(job, BEGAN)
    done.out.mkdir()
    (done.out / "card.json").touch()
    for _ in range(2):
        again = Ledger(tmp_path)
        again.close_abandoned(lost)
        again.close_abandoned(done)
    outcomes = [
        (line["run"], line["outcome"]) for line in read_ledger(tmp_path / LEDGER) if "outcome" in line
    ]
    assert outcomes == [("lost", "abandoned"), ("done", "finished")]


def test_without_a_directory_nothing_is_written(tmp_path: Path) -> None:
    job = Job("a", tmp_path / "a", ("dqn",), 1)
    Ledger(None).began(job, BEGAN)
    assert list(tmp_path.iterdir()) == []
