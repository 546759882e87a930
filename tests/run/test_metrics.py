from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from critex.errors import UserError
from critex.run import Damaged, read_metrics
from critex.run.metrics import MetricsFile, plain_numbers


def line(step: int, **values: object) -> dict[str, object]:
    return {"kind": "train", "step": step, **values}


def test_lines_come_back_as_written(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    lines = [line(1, loss=0.1 + 0.2), line(2, returns=[1.0, -math.inf], loss=math.inf)]
    for each in lines:
        file.write(each)
    assert file.sync() == (tmp_path / "metrics.jsonl").stat().st_size
    file.write(line(3, loss=math.nan))
    file.close()
    *read, last = read_metrics(tmp_path)
    assert read == lines
    assert math.isnan(last["loss"])
    strict = (tmp_path / "metrics.jsonl").read_text()
    json.loads(strict.splitlines()[1], parse_constant=pytest.fail)  # no NaN or Infinity outside of strings


def test_buffered_until_flush(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m")
    file.write({"a": 1})
    assert (tmp_path / "m").read_bytes() == b""
    file.flush()
    assert (tmp_path / "m").read_bytes() == b'{"a": 1}\n'
    file.close()


def test_tensors_become_numbers() -> None:
    numbers = plain_numbers({"a": torch.tensor(2), "b": torch.tensor(0.5, requires_grad=True), "c": 3})
    assert numbers == {"a": 2, "b": 0.5, "c": 3}
    assert type(numbers["a"]) is int


def test_truncate(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m")
    file.write(line(1))
    length = file.sync()
    file.write(line(2))
    file.sync()
    file.truncate(length)
    file.write(line(3))
    file.close()
    assert read_metrics(tmp_path / "m") == [line(1), line(3)]
    again = MetricsFile(tmp_path / "m")
    with pytest.raises(Damaged, match=f"has {2 * length} bytes, fewer than the {2 * length + 1} at"):
        again.truncate(2 * length + 1)
    again.close()


def test_broken_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    bad = [
        b'{"kind": "train", "st',
        b"[3]",
        b"\xff",
        b'{"a": 1}',
        b'{"kind": "train", "step": 6, "loss": "big"}',
        b'{"kind": "train", "step": 6, "loss": 1' + b"0" * 400 + b"}",
    ]
    path.write_bytes(b"\n".join([b'{"kind": "train", "step": 1}', *bad, b'{"kind": "train", "step": 7}\n']))
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2 is broken"):
        read_metrics(path)
    broken: list[str] = []
    assert read_metrics(path, broken) == [line(1), line(7)]
    assert [problem.split(" is broken")[0] for problem in broken] == [
        f"{path}, line {n}" for n in range(2, 8)
    ]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*metrics.jsonl: No such file"):
        read_metrics(tmp_path)
