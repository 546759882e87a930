"""Pictures of one episode in a scene: the path over the map with the share revealed, and a clip with the bonus as a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from critex.errors import UserError
from critex.report.figures import new_figure

BLOCKED, HIDDEN, SEEN = (0.95, 0.95, 0.95), (0.72, 0.74, 0.78), (0.45, 0.68, 0.86)
COLUMNS = 4
CURVE = (200, 40, 40)


@dataclass(frozen=True)
class Trajectory:
    """The path of one episode, and what it revealed."""

    free: NDArray[np.bool_]
    """Cells of the map that the agent can reach, [H, W]."""
    revealed: NDArray[np.bool_]
    """Those it has seen, [H, W]."""
    path: NDArray[np.float64]
    """(row, column) of every step, in cells, [T, 2]."""

    @classmethod
    def of(cls, env: Any) -> Self:
        """The trajectory of an environment with `fog` and `path`, such as VizdoomExplore, at the end of an episode."""
        inner = env.unwrapped
        return cls(inner.fog.free, inner.fog.mask, np.array(inner.path, np.float64))

    @property
    def coverage(self) -> float:
        """Revealed free cells / free cells."""
        return float((self.free & self.revealed).sum() / self.free.sum())


def write_trajectories(path: Path, trajectories: dict[str, Trajectory]) -> None:
    """One panel for each method, four in a row, as png, svg or pdf."""
    columns = min(len(trajectories), COLUMNS)
    rows = -(-len(trajectories) // columns)
    shape = max(np.ptp(it.free.nonzero()[0]) / np.ptp(it.free.nonzero()[1]) for it in trajectories.values())
    figure = new_figure(3 * columns, (3 * min(shape, 1.0) + 0.3) * rows)
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    for axes, (name, trajectory) in zip(panels.flat, trajectories.items(), strict=False):
        draw_trajectory(axes, trajectory, name)
    figure.savefig(path, dpi=120)


def draw_trajectory(axes: Any, it: Trajectory, name: str) -> None:
    """Draw the map, what was revealed, and the path, on matplotlib axes."""
    image = np.empty((*it.free.shape, 3))
    image[:] = BLOCKED
    image[it.free] = HIDDEN
    image[it.free & it.revealed] = SEEN
    rows, columns = it.path.T - 0.5  # imshow puts the centre of the cell [0, 0] at (0, 0)
    used_rows, used_columns = np.nonzero(it.free)
    axes.imshow(image, origin="lower", interpolation="nearest")
    axes.plot(columns, rows, color="tab:red", linewidth=1)
    axes.plot(columns[0], rows[0], "o", color="tab:green", markersize=4)
    axes.set_xlim(used_columns.min() - 2, used_columns.max() + 2)
    axes.set_ylim(used_rows.min() - 2, used_rows.max() + 2)
    axes.set_title(f"{name}: {it.coverage:.1%}", fontsize=9)


def write_clip(
    path: Path, frames: Sequence[NDArray[np.uint8]], bonus: Sequence[float], fps: int = 15, height: int = 60
) -> None:
    """A gif of frames [H, W, 3], with the bonus so far as a curve below them, on the scale of the whole episode."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError('a clip needs Pillow: pip install "critex[report]"') from error
    if len(frames) != len(bonus) or not frames:
        raise UserError(f"a clip needs one bonus for each frame; there are {len(bonus)} for {len(frames)}")
    if path.suffix != ".gif":
        raise UserError(f"a clip is written as .gif, not as {path.name}")
    values = np.asarray(bonus, np.float64)
    low, high = float(values.min()), float(values.max())
    columns = np.linspace(0, frames[0].shape[1] - 1, len(values)).astype(int)
    rows = np.round((height - 3) * (1 - (values - low) / max(high - low, 1e-12))).astype(int) + 1
    strip = np.full((height, frames[0].shape[1], 3), 255, np.uint8)
    clip = []
    for t, frame in enumerate(frames):
        begin, end = (columns[t - 1], columns[t]) if t else (0, 0)
        across = np.arange(begin, end + 1)
        up = np.linspace(rows[max(t - 1, 0)], rows[t], len(across)).round().astype(int)
        for column, row, before in zip(across, up, [up[0], *up[:-1]], strict=True):
            strip[min(row, before) : max(row, before) + 1, column] = CURVE
        clip.append(Image.fromarray(np.concatenate([frame, strip])).quantize(64))
    clip[0].save(path, save_all=True, append_images=clip[1:], duration=round(1000 / fps), loop=0)
