"""The page in a real browser: it fits a phone, answers to keyboard and pointer, and logs no error."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critex.explain.page import Explanation, PlayedEpisode, PlayedStep, encoded, write_explanation
from critex.report import write_report, write_suite_report
from critex.results.cells import load_cells, scores
from critex.tables.grid import Grid

from .conftest import write_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    *("--enable-logging=stderr", "--window-size=1300,900", "--virtual-time-budget=30000", "--dump-dom"),
)
FRAME = """<!doctype html><iframe src="probe.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<pre></pre><script>onmessage = (event) => document.querySelector("pre").textContent = event.data;</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser found; looked for {', '.join(BROWSERS)}")


def browse(index: Path, width: int, *flags: str, probe: str = "report") -> dict[str, Any]:
    """Open the page in a frame of this width; what the probe saw there, and what the console said."""
    page = index.read_text()
    probe = "".join(
        (Path(__file__).parent / f"{part}.js").read_text() for part in (f"probe_{probe}", "probe")
    )
    assert page.count("<head>") == 1
    (index.parent / "probe.html").write_text(page.replace("<head>", f"<head><script>{probe}</script>"))
    frame = index.parent / "frame.html"
    frame.write_text(FRAME.format(width=width))
    profile = index.parent / f"profile-{width}-{len(flags)}"
    command = [BROWSER, *FLAGS, *flags, f"--user-data-dir={profile}", frame.as_uri()]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r"<pre>(.+?)</pre>", done.stdout, re.DOTALL)
    assert found, f"the page said nothing: {done.stderr[-2000:]}"
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    seen["console"] = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return seen


@pytest.fixture(scope="module")
def index(demo_runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(demo_runs, tmp_path_factory.mktemp("report")).index


@pytest.mark.parametrize("width", [375, 1200])
def test_the_page_works(index: Path, width: int) -> None:
    seen = browse(index, width)
    assert seen["errors"] == []
    assert seen["console"] == []
    assert seen["page"]["width"] == width
    assert max(seen["page"]["scroll"], seen["page"]["scrollAfter"]) <= width  # no horizontal scrolling

    assert seen["headings"][:3] == ["H1", "H2", "H3"]
    assert seen["unreachable"] == 0
    assert seen["nameless"] == []

    assert seen["charts"] == [["return", 3], ["evaluation", 3], ["bonus", 2], ["bonus_raw", 2]]
    assert seen["focus"]
    assert seen["home"][0] == "0"
    assert seen["home"][1].startswith("step 24; dqn -0.0")  # 2,400 steps in 100 bins
    assert seen["right"] == "1"
    assert seen["end"][0] == seen["end"][1] == "99"
    assert seen["end"][2].startswith("step 2,400; dqn -0.0")
    assert "dqn+cae (ucb) 0.98" in seen["end"][2]
    assert "(n=3)" in seen["end"][2]
    assert seen["hover"] == "at step 24"
    assert seen["hidden"] == ["false", 2]
    assert seen["shown"] == ["true", 3]
    assert (seen["seeds"], seen["noSeeds"]) == (9, 0)


def test_the_labels_of_an_axis_differ_even_if_its_values_hardly_do(tmp_path: Path) -> None:
    visits = {"shape": [1, 1], "snapshots": [{"step": 200, "counts": [[1]]}]}
    returns, bonuses = [1234 + e / 50 for e in range(20)], [100 + e * 1e-9 for e in range(20)]
    run = write_run(tmp_path / "run", returns, bonus_means=bonuses, visits=visits)
    for labels in browse(write_report([run], tmp_path / "report").index, 800)["labels"]:
        assert len({*labels}) == len(labels) > 3


def test_the_heat_maps_and_the_configurations(index: Path) -> None:
    seen = browse(index, 800)
    maps = seen["map"]
    assert maps["size"] == [8, 8]
    assert (maps["corner"], maps["never"]) == (255, 0)  # the start is always visited, the top right never
    assert maps["start"].startswith("dqn, step 200:")
    assert maps["end"].startswith("dqn, step 2,400:")
    assert seen["playing"] == "Pause"
    assert seen["played"] == ["Play", True, maps["end"]]
    only, every, different = seen["rows"]
    assert only == different + 1 < every  # the row of seeds always stays


def test_dark_where_the_system_is(index: Path) -> None:
    light, dark = browse(index, 800), browse(index, 800, "--blink-settings=preferredColorScheme=0")
    assert light["page"]["background"] == "rgb(244, 245, 247)"
    assert dark["page"]["background"] == "rgb(17, 19, 22)"


# The view of a suite --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def suite_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, two algorithms with and without CAE; one of the four pairs was not run."""
    root = tmp_path_factory.mktemp("suite")
    cells = tuple((t, m) for t in ("Swimmer-v4", "Hopper-v4") for m in ("sac", "sac+cae", "td3", "td3+cae"))
    for t, (task, method) in enumerate(cells[:6]):
        for seed in (1, 2):
            algorithm, _, explorer = method.partition("+")
            where = root / task / method / f"seed-{seed}"
            returns = [t + seed + e for e in range(20)]
            options = {"algorithm": algorithm, "explorer": explorer or "none", "env": task, "seed": seed}
            write_run(where, returns, finish=(t, seed) != (5, 2), **options)
    problems: list[str] = []
    found = load_cells(root, cells, problems)
    grid = Grid(
        "A suite <b>",
        cells,
        {"sac+cae": "sac", "td3+cae": "td3"},
        dict.fromkeys(cells, (10.0, 2.5)),
        5,
        scores(found, "episodes", problems),
        budget=0.5,
    )
    return write_suite_report(grid, found, "return", problems, tmp_path_factory.mktemp("suite-report")).index


@pytest.mark.parametrize("width", [375, 1200])
def test_the_view_of_a_suite_works(suite_index: Path, width: int) -> None:
    seen = browse(suite_index, width, probe="suite")
    assert seen["errors"] == []
    assert seen["console"] == []
    assert seen["page"]["width"] == width
    assert max(seen["page"]["scroll"], seen["page"]["scrollAfter"]) <= width
    assert seen["headings"][:3] == ["H1", "H2", "H2"]  # the page, what is not finished, the suite
    assert seen["unreachable"] == 0
    assert seen["nameless"] == []

    assert seen["groups"] == ["Swimmer-v4", "Hopper-v4"]
    assert seen["rows"] == 8
    assert seen["row"] == ["sac", "11.00 ± 0.71 (n=2)", "10 ± 2.5 (n=5)", "+1", "", ""]
    assert seen["empty"] == ["td3", "", "10 ± 2.5 (n=5)", "", "", ""]
    assert any("Budget 0.5" in note for note in seen["notes"])
    assert seen["panels"] == [["Swimmer-v4, sac", 2], ["Swimmer-v4, td3", 2], ["Hopper-v4, sac", 2]]
    assert seen["focus"]
    assert seen["home"][0].startswith("step 10; sac 1.5 ± 0.707 (n=2); sac+cae 2.5")
    assert seen["home"][1] == "sac 1.5 ± 0.707 (n=2)"
    assert seen["end"].startswith("step 200; sac 20.5")
    assert seen["cards"] == ["sac", "sac+cae", "td3", "td3+cae"]
    assert seen["clock"] == 6
    assert seen["links"] == 12
    assert seen["unfinished"] == ["Hopper-v4, sac+cae, seed 2, not finished"]
    assert seen["columns"] == (1 if width < 500 else 3)


# The novelty viewer ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def viewer_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes down the diagonal of a grid of 4 × 4, each frame of another colour, the bonus rising."""

    def step(episode: int, t: int) -> PlayedStep:
        frame = encoded(np.full((8, 8, 3), 10 * (4 * episode + t), np.uint8))
        return PlayedStep(str(t % 2), 1.0, 0.5 * t + episode, 0.1 * t - 0.1, (t, t), frame)

    episodes = [PlayedEpisode([step(e, t) for t in range(4)], "terminated") for e in range(2)]
    training = np.zeros((4, 4))
    training[:, 0] = 9
    explanation = Explanation("runs/<b>", {"Environment": "Grid-v0"}, ["A note."], episodes, training)
    return write_explanation(explanation, tmp_path_factory.mktemp("viewer"))


@pytest.mark.parametrize("width", [375, 1200])
def test_the_viewer_works(viewer_index: Path, width: int) -> None:
    seen = browse(viewer_index, width, probe="explain")
    assert seen["errors"] == []
    assert seen["console"] == []
    assert seen["page"]["width"] == width
    assert max(seen["page"]["scroll"], seen["page"]["scrollAfter"]) <= width
    assert seen["unreachable"] == 0
    assert seen["nameless"] == []
    assert seen["headings"][:3] == ["H1", "H2", "H2"]

    first = {"at": "step 1 of 4", "action": "0", "return": "1", "raw": "0", "scaled": "-0.1", "cell": "0, 0"}
    assert seen["first"] == first
    assert seen["right"] == {
        "at": "step 2 of 4", "action": "1", "return": "2", "raw": "0.5", "scaled": "0", "cell": "1, 1"
    }  # fmt: skip
    assert seen["left"] == seen["home"] == first
    assert seen["end"]["at"] == "step 4 of 4, terminated"
    assert seen["stays"] == seen["end"]  # nothing lies behind the end
    assert seen["slid"]["at"] == "step 3 of 4"
    assert seen["spoken"] == "step 3 of 4; raw bonus 1; scaled 0.1"
    assert seen["pictures"] == [True, True]  # drawn, and another one after a step
    assert seen["traces"] == 2
    assert seen["clicked"] == "step 4 of 4, terminated"
    assert seen["newest"] == ["episode 2, step 4: 2.5", "2", "step 4 of 4, terminated"]
    assert seen["maps"] == [
        "Visits in these episodes so far: 4 of 16 cells",
        "Mean raw bonus of the steps in it",
        "Visits in training: 4 of 16 cells",
    ]
    assert seen["first visits"] == "Visits in these episodes so far: 1 of 16 cells"
    assert seen["played"] == ["Pause", "Play", "step 4 of 4, terminated"]


def test_the_viewer_without_frames_and_cells(tmp_path: Path) -> None:
    words = PlayedStep("1", 1.0, 2.0, 3.0, None, "@..\n<b>")
    nothing = PlayedStep("1", 1.0, 2.0, 3.0, None, None)
    episodes = [PlayedEpisode([words, nothing], "truncated")]
    index = write_explanation(Explanation("runs/a", {}, [], episodes, None), tmp_path)
    seen = browse(index, 800, probe="explain_words")
    assert seen["errors"] == []
    assert seen["words"] == ["@..\n<b>", False]
    assert seen["nothing"]
    assert seen["maps"]
