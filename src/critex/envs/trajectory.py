"""Pictures of an episode: its path on the map with the coverage, and a clip with the bonus as a curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critex.errors import UserError

BLOCKED, HIDDEN, SEEN = (0.95, 0.95, 0.95), (0.72, 0.74, 0.78), (0.45, 0.68, 0.86)


def draw_trajectory(
    axes: Any,
    free: NDArray[np.bool_],
    revealed: NDArray[np.bool_],
    path: Sequence[tuple[float, float]],
    title: str,
) -> None:
    """Draw on matplotlib axes: free cells [H, W], revealed cells, and the path, (row, column) of every step."""
    image = np.empty((*free.shape, 3))
    image[:] = BLOCKED
    image[free] = HIDDEN
    image[free & revealed] = SEEN
    rows, columns = np.array(path).T
    used_rows, used_columns = np.nonzero(free)
    axes.imshow(image, origin="lower", interpolation="nearest")
    axes.plot(columns - 0.5, rows - 0.5, color="tab:red", linewidth=1)
    axes.plot(columns[0] - 0.5, rows[0] - 0.5, "o", color="tab:green", markersize=4)
    axes.set_xlim(used_columns.min() - 2, used_columns.max() + 2)
    axes.set_ylim(used_rows.min() - 2, used_rows.max() + 2)
    axes.set_axis_off()
    axes.set_title(f"{title}: {(free & revealed).sum() / free.sum():.1%}")


def write_trajectories(path: Path, episodes: Sequence[tuple[str, Any]]) -> None:
    """One panel for each (name, environment at the end of an episode), side by side, as png, svg or pdf."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(episodes), 4), layout="constrained")
    for axes, (name, env) in zip(np.ravel(figure.subplots(1, len(episodes))), episodes, strict=True):
        inner = env.unwrapped
        draw_trajectory(axes, inner.plan.reachable, inner.revealed, inner.path, name)
    figure.savefig(path, dpi=120)


def write_clip(
    path: Path, frames: Sequence[NDArray[np.uint8]], bonus: Sequence[float], fps: int = 15, height: int = 60
) -> None:
    """A gif (or mp4, with imageio-ffmpeg) of frames [H, W, 3], with the bonus so far as a curve below them."""
    import imageio.v3 as imageio

    if len(frames) != len(bonus) or not frames:
        raise UserError(f"a clip needs one bonus for each frame; there are {len(bonus)} for {len(frames)}")
    values = np.asarray(bonus, np.float64)
    low, high = float(values.min()), float(values.max())
    width = frames[0].shape[1]
    columns = np.linspace(0, width - 1, len(values)).astype(int)
    rows = np.round((height - 3) * (1 - (values - low) / max(high - low, 1e-12))).astype(int) + 1
    strip = np.full((height, width, 3), 255, np.uint8)
    clip = []
    for t, frame in enumerate(frames):
        begin, end = (columns[t - 1], columns[t]) if t else (0, 0)
        across = np.arange(begin, end + 1)
        up = np.linspace(rows[max(t - 1, 0)], rows[t], len(across)).round().astype(int)
        for column, row, before in zip(across, up, [up[0], *up[:-1]], strict=True):
            strip[min(row, before) : max(row, before) + 1, column] = (200, 40, 40)
        clip.append(np.concatenate([frame, strip]))
    options: dict[str, Any] = {"loop": 0, "duration": 1000 / fps} if path.suffix == ".gif" else {"fps": fps}
    try:
        imageio.imwrite(path, np.stack(clip), **options)
    except (OSError, ImportError, ValueError) as error:
        raise UserError(
            f"{path} cannot be written ({' '.join(str(error).split())}); gif needs no further package"
        ) from error
