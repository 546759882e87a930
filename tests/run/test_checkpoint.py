from __future__ import annotations

import errno
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from critex.data import files
from critex.data.files import atomic_write, plain_state
from critex.errors import UserError
from critex.run import Checkpoints, Damaged
from critex.run.checkpoint import read_checkpoint, write_checkpoint
from critex.run.files import disk_errors

STATE = {
    "weights": OrderedDict(w=torch.arange(6.0).reshape(2, 3)),
    "numbers": [1, 2.5, True, None, "text", b"bytes"],
    "nested": {"tuple": (1, (2,)), 3: torch.float32},
}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt", STATE)
    state = read_checkpoint(tmp_path / "a.ckpt")
    assert torch.equal(state["weights"]["w"], STATE["weights"]["w"])
    assert state["numbers"] == STATE["numbers"]
    assert state["nested"] == STATE["nested"]


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    write_checkpoint(path, STATE)
    whole = path.read_bytes()
    for position in [*range(120), *range(120, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(Damaged):  # also in the version: the previous checkpoint is used
            read_checkpoint(path)
    for length in (0, 10, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(Damaged, match="damaged"):
            read_checkpoint(path)


def test_newer_format_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ckpt"
    with monkeypatch.context() as newer:
        newer.setattr(files, "FORMAT", 9)
        write_checkpoint(path, STATE)
    with pytest.raises(UserError, match="has format 9"):
        read_checkpoint(path)


class Malicious:
    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("critex.data.files.plain_state", lambda state: state)
    write_checkpoint(tmp_path / "a.ckpt", {"parts": Malicious()})  # a valid checksum, written by a villain
    with pytest.raises(Damaged, match=r"cannot be loaded .*[Ww]eights"):
        read_checkpoint(tmp_path / "a.ckpt")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("value", [np.zeros(2), np.float64(1.0), {1, 2}, object()])
def test_unloadable_types_are_refused_when_saving(value: Any) -> None:
    with pytest.raises(TypeError, match=r"state\['agent'\]\[0\] is a "):
        plain_state({"agent": [value]})


def test_a_view_does_not_drag_its_storage_along(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt", {"row": torch.zeros(1000, 1000)[3]})
    assert (tmp_path / "a.ckpt").stat().st_size < 20_000


def test_last_two_are_kept_and_the_previous_one_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (0, 5, 10_000, 999_999_999_999):
        checkpoints.save(step, {"step": step})
    assert [path.name for path in checkpoints.files()] == ["step-999999999999.ckpt", "step-000000010000.ckpt"]
    assert checkpoints.newest() == {"step": 999_999_999_999}
    checkpoints.files()[0].write_bytes(b"rubbish")
    assert checkpoints.newest() == {"step": 10_000}
    report = capsys.readouterr().err
    assert report.count("\n") == 1
    assert "step-999999999999.ckpt is damaged" in report
    checkpoints.files()[1].write_bytes(b"")
    with pytest.raises(UserError, match="no valid checkpoint in"):
        checkpoints.newest()


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")
    real, calls = os.write, 0

    def full_disk(fd: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:2])

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(UserError, match=r"no space left to write .*file"), disk_errors(path):
        atomic_write(path, b"new content")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    atomic_write(tmp_path / "file", b"written in many ", b"small pieces")
    assert (tmp_path / "file").read_bytes() == b"written in many small pieces"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_full_disk_under_torch_save_is_understood(size: int) -> None:
    path = Path("/dev/full")
    with (
        pytest.raises(
            UserError, match=r"no space left to write /dev/full \(No space left on device\); free some"
        ),
        disk_errors(path),
        path.open("wb") as file,
    ):
        torch.save(torch.zeros(size), file)
    with pytest.raises(RuntimeError, match="something else"), disk_errors(path):
        raise RuntimeError("something else")
