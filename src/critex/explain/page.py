"""The page of `critex explain`: a trained agent step by step, and how new each step is to its explorer."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critex.errors import UserError, printable
from critex.explain.scene import SceneEpisode
from critex.explorers.diagnostics import FeatureSummary
from critex.report.figures import write_csv
from critex.report.page import page
from critex.report.trajectory import write_clip, write_trajectories
from critex.results.formatting import number
from critex.results.stats import Floats
from critex.run.files import disk_errors
from critex.run.record import CONFIG

SIDE = 320
"""Largest width and height of a frame, in pixels."""
CLIP_EVERY = 2
"""Steps from one frame of the clip to the next."""


@dataclass(frozen=True)
class PlayedStep:
    """One step of an episode."""

    action: str
    reward: float
    raw: float
    scaled: float
    cell: tuple[int, int] | None
    """(row, column) in which the step was taken, on grid-like tasks."""
    frame: str | None
    """The frame before the step: an image as written by `encoded`, or text."""


@dataclass(frozen=True)
class PlayedEpisode:
    """One episode: its steps, and whether it terminated, was truncated, or reached the step limit."""

    steps: Sequence[PlayedStep]
    end: str


@dataclass(frozen=True)
class Explanation:
    """Everything the page shows."""

    title: str
    facts: dict[str, str]
    notes: Sequence[str]
    episodes: Sequence[PlayedEpisode]
    training: Floats | None
    """Visits of each cell in training, [rows, columns], if they were counted."""
    features: FeatureSummary | None = None
    bonus_shares: Sequence[float] = ()
    """Share of the raw bonus paid in each tenth of an episode."""
    scene: SceneEpisode | None = None
    """A whole episode to draw, if the environment has a map."""


def encoded(frame: Any) -> str:
    """A frame [H, W, 3] as a data URI, lossless if it has few colours; text without its terminal codes."""
    if isinstance(frame, str):
        lines = re.sub(r"\x1b\[[0-9;]*m", "", frame).split("\n")
        return "\n".join(map(printable, lines))
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError('frames need Pillow: pip install "critex[report]"') from error
    image = Image.fromarray(frame).convert("RGB")
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    if image.getcolors(256):
        image.quantize(256).save(file, "PNG", optimize=True)
        kind = "png"
    else:
        image.save(file, "JPEG", quality=75)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def write_explanation(explanation: Explanation, out: Path) -> Path:
    """Write index.html, and steps.csv and the pictures of a scene beside it; return the path of the page."""
    if (out / CONFIG).exists():
        raise UserError(f"{out} is a run; write the page to another directory, as in --out explain")
    html = page("explain.html.j2", _data(explanation), "critex.explain", it=explanation)
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        write_csv(out / "steps.csv", step_rows(explanation.episodes))
        if scene := explanation.scene:
            write_trajectories(out / "trajectory.png", {scene.env.partition("?")[0]: scene.trajectory})
            write_clip(out / "episode.gif", scene.frames[::CLIP_EVERY], scene.bonus[::CLIP_EVERY])
        index = out / "index.html"
        index.write_text(html, encoding="utf-8")
    return index


def step_rows(episodes: Sequence[PlayedEpisode]) -> Iterable[list[str]]:
    """episode, step, action, reward, raw and scaled bonus, and the cell if there is one."""
    yield ["episode", "step", "action", "reward", "bonus_raw", "bonus", "row", "column"]
    for e, episode in enumerate(episodes, start=1):
        for t, step in enumerate(episode.steps):
            cell = ("", "") if step.cell is None else map(str, step.cell)
            yield [str(e), str(t), step.action, *map(number, (step.reward, step.raw, step.scaled)), *cell]


def _data(it: Explanation) -> dict[str, Any]:
    """The data for the script; every distinct frame is stored once."""
    frames: dict[str, int] = {}
    episodes = []
    for episode in it.episodes:
        steps = [
            {
                "action": step.action,
                "reward": _six(step.reward),
                "raw": _six(step.raw),
                "scaled": _six(step.scaled),
                "cell": step.cell,
                "frame": None if step.frame is None else frames.setdefault(step.frame, len(frames)),
            }
            for step in episode.steps
        ]
        episodes.append({"steps": steps, "end": episode.end})
    training = None if it.training is None else it.training.astype(int).tolist()
    return {"episodes": episodes, "frames": list(frames), "shape": _shape(it), "training": training}


def _six(value: float) -> float:
    return float(f"{value:.6g}")


def _shape(it: Explanation) -> tuple[int, int] | None:
    """Rows and columns of the map, which covers all cells of training and of these episodes."""
    cells = [step.cell for episode in it.episodes for step in episode.steps if step.cell]
    corners = [(row + 1, column + 1) for row, column in cells]
    if it.training is not None:
        rows, columns = it.training.shape
        corners.append((rows, columns))
    return (max(r for r, _ in corners), max(c for _, c in corners)) if cells else None
