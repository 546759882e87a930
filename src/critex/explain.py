"""`critex explain`: roll out a trained agent and show, step by step, how new each step is to its explorer."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from critex.data import Transition, derive_seed
from critex.envs import Envs, make
from critex.errors import UserError
from critex.report.viewer import Episode, Explanation, Step, encoded, write_explanation
from critex.trained import Trained, load_trained

# What draws where there is no screen and no sound: MuJoCo through EGL, pygame (classic control, Box2D) into memory.
WITHOUT_SCREEN = {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}


class Novelty:
    """(raw, scaled) bonus of a transition [1], as training would pay it after the checkpoint.

    It is measured against the memory that training left, and changes nothing. Where that cannot be, as with a memory
    that ends with each episode, the memory goes on with the steps that it is shown.
    """

    def __init__(self, trained: Trained) -> None:
        self._explorer, self._see = trained.explorer, getattr(trained.agent, "see", lambda obs: obs)
        self.advances = trained.explorer.episodic
        # An episodic memory has a place for each env of training; all of them are shown the same step.
        self._rows = trained.cfg.num_envs if self.advances else 1

    def __call__(self, step: Transition) -> tuple[float, float]:
        step = replace(step, obs=self._see(step.obs), next_obs=self._see(step.next_obs))
        raw, scaled = self._advance(step) if self.advances else self._measure(step)
        return float(raw[0]), float(scaled[0])

    def _measure(self, step: Transition) -> tuple[Tensor, Tensor]:
        try:
            return self._explorer.measure(step.obs, step.action, step.next_obs)
        except UserError:
            self.advances = True
            return self._advance(step)

    def _advance(self, step: Transition) -> tuple[Tensor, Tensor]:
        return self._explorer._bonus(step.map(lambda x: x.expand(self._rows, *x.shape[1:])))


def explain(
    path: Path, out: Path, episodes: int = 3, seed: int = 0, max_steps: int = 300
) -> tuple[Path, list[str]]:
    """Write the viewer of a run; the path of its page, and what had to be said about it."""
    for name, value in (("episodes", episodes), ("max-steps", max_steps)):
        if value < 1:
            raise UserError(f"--{name} must be at least 1, got {value}")
    with without("MUJOCO_GL"):  # a GL library that is not there must fail where we draw, not on import
        trained = load_trained(path)
    envs, note = drawable(trained.cfg.env, derive_seed(seed, "envs"))
    novelty = Novelty(trained)
    with closing(envs), torch.no_grad():
        played = [play(trained.agent, envs, novelty, e, max_steps, frames=not note) for e in range(episodes)]
    notes = [*([note] if note else []), about(trained, novelty)]
    counts = trained.state["run"]["visits"]["counts"]
    training = counts.double().numpy() if counts.numel() else None
    explanation = Explanation(str(path), facts(trained, played), notes, played, training)
    return write_explanation(explanation, out), notes


def play(agent: Any, envs: Envs, novelty: Novelty, number: int, max_steps: int, frames: bool) -> Episode:
    """One episode, greedily, as long as it is or as `max_steps` allows."""
    envs.load_state_dict({"episode": [number], "actions": [torch.empty(0)], "finished": []})
    obs, steps, here, policy = envs.obs, list[Step](), None, agent.policy
    while len(steps) < max_steps:
        frame = envs.render()[0] if frames else None
        transition, obs = envs.step(policy(obs))
        raw, scaled = novelty(transition)
        here = here or cell(transition.info.get("start_position"))
        action, reward = action_words(transition.action[0]), float(transition.reward[0])
        steps.append(Step(action, reward, raw, scaled, here, None if frame is None else encoded(frame)))
        if transition.ended[0]:
            return Episode(steps, "terminated" if transition.terminated[0] else "truncated")
        here = cell(transition.info.get("position"))
    return Episode(steps, f"cut off after {max_steps} steps")


def action_words(action: Tensor) -> str:
    """`1`, or `0.25, -0.5`."""
    return ", ".join(f"{value:.3g}" for value in action.flatten().tolist())


def cell(position: Tensor | None) -> tuple[int, int] | None:
    """A position [1, 1] or [1, 2] of whole numbers as (row, column); one number alone is a column."""
    if position is None or position.is_floating_point() or position.shape[1] > 2 or position.min() < 0:
        return None
    *row, column = position[0].tolist()
    return (row[0] if row else 0), column


@contextmanager
def without(name: str) -> Iterator[None]:
    """Leave an environment variable out for a while."""
    value = os.environ.pop(name, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[name] = value


def drawable(env_id: str, seed: int) -> tuple[Envs, str]:
    """The environment with frames to draw; without them, and with the reason, where they cannot be had."""
    with closing(make(env_id)) as env:
        modes = env.metadata.get("render_modes", [])
    mode = next((m for m in ("rgb_array", "ansi") if m in modes), None)
    if mode is None:
        return Envs(env_id, 1, seed), f"{env_id} draws no frames; shown without."
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        for name, value in WITHOUT_SCREEN.items():
            os.environ.setdefault(name, value)
    complain = sys.unraisablehook
    sys.unraisablehook = lambda _: None  # a viewer that was half made complains once more at its end
    try:
        envs = Envs(env_id, 1, seed, render_mode=mode)
        envs.render()
    except Exception as error:  # noqa: BLE001  every GL library fails in its own way, and the rest can be shown
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "; MUJOCO_GL=egl or osmesa may help" if "mujoco" in sys.modules else ""
        note = f"No frames, as they cannot be drawn here: {reason.rstrip('.')}{hint}."
    else:
        return envs, ""
    finally:
        gc.collect()
        sys.unraisablehook = complain
    return Envs(env_id, 1, seed), note


def about(trained: Trained, novelty: Novelty) -> str:
    """What the bonuses on the page are measured against."""
    name = trained.cfg.explorer
    if name == "none":
        return "This run has no explorer: the bonus is 0 everywhere."
    if novelty.advances and trained.explorer.episodic:
        return f"The memory of {name} starts afresh with each episode and fills up in it, in a copy."
    if novelty.advances:
        return f"{name} cannot measure without remembering: a copy of its memory went on with these episodes."
    return f"Bonuses are measured against what {name} remembered at step {trained.step:,}; nothing is added to it."


def facts(trained: Trained, played: list[Episode]) -> dict[str, str]:
    """What the page tells of the run."""
    cfg, returns = trained.cfg, [sum(step.reward for step in episode.steps) for episode in played]
    scaling = getattr(cfg.bonus, "scaling", "none")
    return {
        "Environment": cfg.env,
        "Algorithm": trained.algorithm,
        "Explorer": cfg.explorer,
        "α": f"{cfg.alpha:g}, in the {cfg.bonus_in}",
        "Scaling of the bonus": "batch, in the learner; none here" if scaling == "batch" else scaling,
        "Steps of training": f"{trained.step:,} of {cfg.steps:,}",
        "Returns here": ", ".join(f"{value:.4g}" for value in returns),
    }


def command(args: list[str], prog: str, parse: Callable[..., Any]) -> None:
    """`critex explain RUN`; `parse` is that of the command line."""

    def options(
        run: Path, /, episodes: int = 3, seed: int = 0, max_steps: int = 300, out: Path = Path("explain")
    ) -> tuple[Path, int, int, int, Path]:
        """Play a trained agent greedily and write a page that shows every step: frame, raw and scaled bonus, map.

        Args:
            run: directory of the run, finished or interrupted
            episodes: how many episodes to play
            seed: seed of the environment
            max_steps: steps of an episode to show at most
            out: directory to write to; its index.html is the page
        """
        return run, episodes, seed, max_steps, out

    run, episodes, seed, max_steps, out = parse(options, prog, args)
    index, notes = explain(run, out, episodes, seed, max_steps)
    for note in notes:
        print(note)
    print(f"page: {index}")
