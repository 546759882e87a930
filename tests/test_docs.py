"""README and docs are code: their python blocks run, and their commands are real.

The python blocks of a page share one namespace and run in order, in a temporary directory. In bash blocks
every line that begins with `critex` must be valid for the command line. The page of an algorithm or explorer has
every option with its default, and every metric that a run logs, or links to the page that has it. A comment above a
block changes what is run:

    <!-- run -->            run the bash block too, in the same directory
    <!-- run: words -->     and find these words in its output
    <!-- skip: reason -->   leave it out
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import tyro

from critex import cli
from critex.algorithms import ALGORITHMS, algorithm_module
from critex.cli.options import field_help
from critex.errors import UserError
from critex.explorers import EXPLORERS, CombinationConfig, ExplorationConfig, explorer_class
from critex.run import RunConfig

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
    monkeypatch.setattr(tyro, "cli", parse_only)
    for block in blocks(page, "bash"):
        for arguments in commands(block.code):
            with pytest.raises((Parsed, SystemExit)) as stop:
                cli.dispatch(arguments)
            assert stop.type is Parsed or stop.value.code in (None, 0), arguments


def parse_only(*args: Any, parse: Callable[..., Any] = tyro.cli, **options: Any) -> Any:
    parse(*args, **options)
    raise Parsed


def test_a_wrong_flag_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tyro, "cli", parse_only)
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


def test_the_marked_lines_fit_a_narrow_window() -> None:
    for page in ("README.md", "docs/own-code.md"):
        lines = [line for block in blocks(ROOT / page, "python") for line in block.code.splitlines()]
        marked = [line for line in lines if line.endswith("# CAE")]
        assert marked and max(map(len, marked)) <= 72


def rows(page: str) -> set[tuple[str, str]]:
    """The rows of a page's tables that begin with a name: it, and what stands beside it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(\w+)` \| (.*?) ?\|", text, re.M))


def shown(default: object) -> str:
    """A default as the pages write it."""
    match default:
        case None | bool() | "" | ():
            return {None: "`none`", True: "`true`", False: "`false`", "": "", (): ""}[default]
        case tuple():
            return f"`{' '.join(map(str, default))}`"
        case int() if default >= 10_000:
            return f"`{default:_}`"
    return f"`{default}`"


OPTIONS = {
    "runs.md": RunConfig,
    "explorers/index.md": ExplorationConfig,
    "explorers/combination.md": CombinationConfig,
    **{f"explorers/{name}.md": explorer_class(name).Config for name in EXPLORERS if name != "none"},
    **{f"algorithms/{name}.md": algorithm_module(name).Config for name in ALGORITHMS},
}


@pytest.mark.parametrize("page", OPTIONS)
def test_every_option_is_on_its_page_with_its_default(page: str) -> None:
    config = OPTIONS[page]
    own = config.__annotations__ if page.startswith("algorithms") else {f.name for f in fields(config)}
    assert not {(f.name, shown(f.default)) for f in fields(config) if f.name in own} - rows(page)


def described(page: Path) -> dict[str, str]:
    """What the option table of a page says. "As for [CAE](cae.md#options)." means what that page says."""
    (table,) = re.findall(
        r"^\| option \| default \| \|\n((?:\|.*\n)+)", page.read_text(encoding="utf-8"), re.M
    )
    said = dict(re.findall(r"^\| `(\w+)` \|.*?\| (.*) \|$", table, re.M))
    links = {name: re.match(r"As for \[.+\]\((\w+\.md)#options\)\.", words) for name, words in said.items()}
    return said | {name: described(page.parent / link[1])[name] for name, link in links.items() if link}


@pytest.mark.parametrize("page", OPTIONS)
def test_option_tables_say_what_the_help_says(page: str) -> None:
    help_ = field_help(OPTIONS[page])
    said = described(ROOT / "docs" / page)
    wanted = {name: help_[name] for name in said if name in help_}
    assert wanted
    assert not {
        name: words
        for name, words in wanted.items()
        if not said[name].replace("`", "").startswith(words.replace("`", ""))
    }


SHORT = {  # the smallest runs that log everything
    "dqn": "--env CartPole-v1 --learning-starts 100 --bonus-in reward",
    "dsac": "--env Pendulum-v1 --learning-starts 100 --steps-per-update 10 --hidden 16",
    "impala": "--env CartPole-v1 --unroll 15 --num-envs 2 --hidden 16",
    "ppo": "--env Pendulum-v1 --rollout 100 --minibatches 4 --hidden 16",
    "ppo_recurrent": "--env CartPole-v1 --rollout 50 --num-envs 2 --hidden 16 --core-width 16",
    "sac": "--env Pendulum-v1 --learning-starts 100 --hidden 16",
    "td3": "--env Pendulum-v1 --learning-starts 100 --hidden 16",
}
EVERY = "--steps 300 --log-every 50 --eval-every 300 --eval-episodes 1 --no-tensorboard --no-progress"


def named(*pages: str) -> set[str]:
    return {name for page in pages for name, _ in rows(page)}


def logged(algorithm: str, out: Path, *flags: str) -> set[str]:
    """The names in metrics.jsonl after a short run, without those that every line has."""
    words = [*SHORT[algorithm].split(), *EVERY.split(), *flags]
    cli.dispatch(["train", algorithm, "--out", str(out), *words])
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines} >= {"train", "eval"}
    return {name for line in lines for name in line} - {"kind", "step", "time"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_metric_of_an_algorithm_is_on_its_page(algorithm: str, tmp_path: Path) -> None:
    names = logged(algorithm, tmp_path / "run")
    assert "loss" in names
    assert not names - named(f"algorithms/{algorithm}.md", "runs.md")


@pytest.mark.parametrize("explorer", [name for name in EXPLORERS if name != "none"])
def test_every_metric_of_an_explorer_is_on_its_page(explorer: str, tmp_path: Path) -> None:
    rebuild = ["--bonus.scope", "lifelong", "--bonus.rebuild-every", "50"]
    flags = rebuild if hasattr(explorer_class(explorer).Config, "rebuild_every") else []
    names = logged("dqn", tmp_path / "run", "--explorer", explorer, *flags)
    assert "bonus" in names
    assert ("phi_drift" in names) == bool(flags)
    pages = [f"explorers/{explorer}.md", "explorers/index.md", "algorithms/dqn.md", "runs.md"]
    if "(cae.md#metrics)" in (ROOT / "docs" / pages[0]).read_text(encoding="utf-8"):
        pages.append("explorers/cae.md")
    assert not names - named(*pages)


def test_figures_of_the_readme_follow_the_readers_colours() -> None:
    pictures = re.findall(r"^!\[[^]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    assert pictures
    for picture in pictures:
        content = (ROOT / picture).read_bytes()
        if picture.endswith(".png"):
            assert content[25] == 6, (
                f"{picture} has no transparent background"
            )  # colour type of the header: RGBA
        else:
            assert b"prefers-color-scheme: dark" in content


def test_a_long_formula_scrolls_by_itself() -> None:
    pytest.importorskip("latex2mathml")
    scope: dict[str, Any] = {}
    exec((ROOT / "docs" / "_hooks" / "mathml.py").read_text(encoding="utf-8"), scope)
    page = scope["on_page_content"](
        r'<div class="arithmatex">\[x\]</div> <span class="arithmatex">\(y\)</span>'
    )
    assert page.startswith('<div class="formula"><math') and page.count('class="formula"') == 1
    assert ".formula { overflow-x: auto" in (ROOT / "docs" / "assets" / "extra.css").read_text(
        encoding="utf-8"
    )
