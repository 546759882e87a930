"""README and docs are code: their python blocks run, and their commands are real.

The python blocks of a page share one namespace and run in order, in a temporary directory. In bash blocks
every line that begins with `critex` must be valid for the command line. A comment above a block changes that:

    <!-- run -->            run the bash block too, in the same directory
    <!-- run: words -->     and find these words in its output
    <!-- skip: reason -->   leave it out
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from critex import cli
from critex.errors import UserError

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"(?:<!--\s*(?P<mark>[^>]*?)\s*-->\s*\n)?^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block and where it stands."""

    page: Path
    line: int
    language: str
    mark: str
    code: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page in these languages that are not marked to be skipped."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        mark = match["mark"] or ""
        line = text[: match.start("code")].count("\n") + 1
        if mark.startswith("skip"):
            assert re.match(r"skip: \S", mark), (
                f"{page}:{line}: say why the block is skipped: <!-- skip: reason -->"
            )
        elif match["language"] in languages:
            found.append(Block(page, line, match["language"], mark, match["code"]))
    return found


def with_blocks(*languages: str) -> pytest.MarkDecorator:
    """One test for each page that has such blocks."""
    pages = [page for page in PAGES if blocks(page, *languages)]
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


def commands(code: str) -> list[list[str]]:
    """The `critex` commands of a shell block, as argument lists."""
    lines = code.replace("\\\n", " ").splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [line[1:] for line in words if line and line[0] == "critex"]


@with_blocks("python", "bash")
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    namespace: dict[str, object] = {"__name__": "__docs__"}
    for block in blocks(page, "python", "bash"):
        if block.language == "python":
            # Padded with newlines, so that a traceback shows the line of the page.
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
        elif block.mark.startswith("run"):
            shell = ["bash", "-euo", "pipefail", "-c", block.code]
            done = subprocess.run(
                shell, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            output = f"{page}:{block.line}\n{done.stdout}\n{done.stderr}"
            assert done.returncode == 0, output
            assert block.mark.partition(": ")[2] in done.stdout, output


class Parsed(Exception):
    """The command line understood the flags; nothing has been executed."""


@with_blocks("bash")
def test_commands_are_accepted(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "parse", parse_only)
    for block in blocks(page, "bash"):
        for arguments in commands(block.code):
            with pytest.raises((Parsed, SystemExit)) as stop:
                cli.dispatch(arguments)
            assert stop.type is Parsed or stop.value.code in (None, 0), arguments


def parse_only(*args: Any, parse: Callable[..., Any] = cli.parse, **options: Any) -> Any:
    parse(*args, **options)
    raise Parsed


def test_a_wrong_flag_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "parse", parse_only)
    with pytest.raises(Parsed):
        cli.dispatch(["train", "dqn", "--explorer", "cae", "--bonus.ridge", "0.1"])
    with pytest.raises(UserError, match=r"bonus\.rige"):
        cli.dispatch(["train", "dqn", "--explorer", "cae", "--bonus.rige", "0.1"])


def test_the_reader_of_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    skipped = "<!-- skip: slow -->\n```python\n1 / 0\n```\n"
    page.write_text(f"a\n\n```python\nx = 1\n```\n\n{skipped}<!-- run -->\n```bash\nls\n```\n")
    assert blocks(page, "python") == [Block(page, 4, "python", "", "x = 1\n")]
    assert [(block.mark, block.code) for block in blocks(page, "bash")] == [("run", "ls\n")]
    assert commands("$ critex eval \\\n  runs/a  # why\nmake demo\n") == [["eval", "runs/a"]]
    page.write_text("<!-- skip -->\n```python\n1 / 0\n```\n")
    with pytest.raises(AssertionError, match="say why"):
        blocks(page, "python")
