"""Play a trained agent and measure, step by step, how new each step is to its explorer."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from critex.data import Transition, derive_seed
from critex.envs import Envs, make
from critex.errors import UserError, printable, reason
from critex.explain.features import bonus_shares, early_share
from critex.explain.page import Explanation, PlayedEpisode, PlayedStep, encoded, write_explanation
from critex.explain.scene import has_scene, play_scene
from critex.explorers import Elliptical
from critex.explorers.diagnostics import FeatureSummary, early_warning
from critex.trained import Trained, load_trained

# Rendering without a screen: MuJoCo through EGL, pygame (classic control, Box2D) into memory.
WITHOUT_SCREEN = {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}


class Novelty:
    """(raw, scaled) bonus of a transition [1], as training would pay it after the checkpoint.

    It is measured against the memory at the end of training, which does not change. If that is impossible, as with a
    memory that is reset in each episode, a copy of the memory is updated with each step.
    """

    def __init__(self, trained: Trained) -> None:
        self._explorer = trained.explorer
        self._see = getattr(trained.agent, "see", lambda obs: obs)  # an algorithm of a plug-in may have none
        self.advances = trained.explorer.episodic
        self.phi: list[Tensor] = []  # features [1, d] of the steps, if the explorer has features
        # An episodic memory has one slot per training env; all of them are given the same step.
        self._rows = trained.cfg.num_envs if self.advances else 1

    def __call__(self, step: Transition) -> tuple[float, float]:
        step = replace(step, obs=self._see(step.obs), next_obs=self._see(step.next_obs))
        if isinstance(self._explorer, Elliptical):
            self.phi.append(self._explorer.phi(step.obs, step.action, step.next_obs))
        raw, scaled = self._advance(step) if self.advances else self._measure(step)
        return float(raw[0]), float(scaled[0])

    def features(self) -> FeatureSummary | None:
        """A summary of the features of all steps so far; None if the explorer has none."""
        if not isinstance(self._explorer, Elliptical) or not self.phi:
            return None
        summary: FeatureSummary = self._explorer.summary(torch.cat(self.phi))
        return summary

    def _measure(self, step: Transition) -> tuple[Tensor, Tensor]:
        try:
            return self._explorer.measure(step.obs, step.action, step.next_obs)
        except UserError:
            self.advances = True
            return self._advance(step)

    def _advance(self, step: Transition) -> tuple[Tensor, Tensor]:
        return self._explorer._bonus(step.map(lambda x: x.expand(self._rows, *x.shape[1:])))


def explain(
    path: Path,
    out: Path,
    episodes: int = 3,
    seed: int = 0,
    max_steps: int = 300,
    *,
    allow_import: bool = False,
) -> tuple[Path, list[str]]:
    """Write the page of a run; return its path, and notes and warnings about it."""
    with without("MUJOCO_GL"):  # a missing GL library must fail when we render, not on import
        trained = load_trained(path, allow_import=allow_import)
    envs, note = drawable(trained.cfg.env, derive_seed(seed, "envs"))
    novelty = Novelty(trained)
    with closing(envs), torch.no_grad():
        played = [play(trained.agent, envs, novelty, e, max_steps, frames=not note) for e in range(episodes)]
    scene = None
    if has_scene(trained.cfg.env):
        scene_env = getattr(trained.cfg, "eval_env", "") or trained.cfg.env
        scene = play_scene(scene_env, trained.agent.policy, seed, Novelty(trained))
    raw = [[step.raw for step in episode.steps] for episode in played]
    phi = novelty.features()
    warnings = [*(phi.warnings if phi else []), *early_warning(early_share(raw))]
    notes = [*([note] if note else []), memory_note(trained, novelty), *warnings]
    counts = trained.state["run"]["visits"]["counts"]
    training = counts.double().numpy() if counts.numel() else None
    explanation = Explanation(
        printable(str(path)), facts(trained, played), notes, played, training, phi, bonus_shares(raw), scene
    )
    return write_explanation(explanation, out), notes


def play(
    agent: Any, envs: Envs, novelty: Novelty, number: int, max_steps: int, frames: bool
) -> PlayedEpisode:
    """Play one episode as in an evaluation, for at most `max_steps` steps."""
    envs.load_state_dict({"episode": [number], "actions": [torch.empty(0)], "finished": [], "clock": 0})
    obs, steps, here, policy = envs.obs, list[PlayedStep](), None, agent.policy
    while len(steps) < max_steps:
        frame = envs.render()[0] if frames else None
        transition, obs = envs.step(policy(obs))
        raw, scaled = novelty(transition)
        here = here or cell(transition.info.get("start_position"))
        action, reward = action_words(transition.action[0]), float(transition.reward[0])
        steps.append(PlayedStep(action, reward, raw, scaled, here, None if frame is None else encoded(frame)))
        if transition.ended[0]:
            return PlayedEpisode(steps, "terminated" if transition.terminated[0] else "truncated")
        here = cell(transition.info.get("position"))
    return PlayedEpisode(steps, f"stopped after {max_steps} steps")


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
    """Unset an environment variable inside the block."""
    value = os.environ.pop(name, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[name] = value


def drawable(env_id: str, seed: int) -> tuple[Envs, str]:
    """The environment with rendering, or without it and with the reason if it cannot be rendered here."""
    with closing(make(env_id)) as env:
        modes = env.metadata.get("render_modes", [])
    mode = next((m for m in ("rgb_array", "ansi") if m in modes), None)
    if mode is None:
        return Envs(env_id, 1, seed), f"{env_id} does not render frames; shown without them."
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        for name, value in WITHOUT_SCREEN.items():
            os.environ.setdefault(name, value)
    complain = sys.unraisablehook
    # A half-initialised renderer raises again when it is garbage-collected.
    sys.unraisablehook = lambda _: None
    try:
        envs = Envs(env_id, 1, seed, render_mode=mode)
        envs.render()
    except Exception as error:  # noqa: BLE001  every GL library fails in its own way, and the rest can be shown
        hint = "; MUJOCO_GL=egl or osmesa may help" if "mujoco" in sys.modules else ""
        note = f"No frames: they cannot be rendered here: {reason(error).rstrip('.')}{hint}."
    else:
        return envs, ""
    finally:
        gc.collect()
        sys.unraisablehook = complain
    return Envs(env_id, 1, seed), note


def memory_note(trained: Trained, novelty: Novelty) -> str:
    """The memory that the bonuses on the page are measured against."""
    name = trained.cfg.explorer
    if name == "none":
        return "This run has no explorer: the bonus is 0 everywhere."
    if novelty.advances and trained.explorer.episodic:
        return f"The memory of {name} is reset in each episode and fills up during it (in a copy)."
    if novelty.advances:
        return f"{name} cannot measure a step without remembering it: a copy of its memory advanced with these episodes."
    return f"Bonuses are measured against what {name} remembered at step {trained.step:,}; nothing is added to it."


def facts(trained: Trained, played: list[PlayedEpisode]) -> dict[str, str]:
    """The facts about the run on the page."""
    cfg, returns = trained.cfg, [sum(step.reward for step in episode.steps) for episode in played]
    scaling = getattr(cfg.bonus, "scaling", "none")
    return {
        "Environment": cfg.env,
        "Algorithm": trained.algorithm,
        "Explorer": cfg.explorer,
        "α": f"{trained.explorer.alpha.value:.3g}, in the {cfg.bonus_in}",
        "Scaling of the bonus": "batch, in the learner; none here" if scaling == "batch" else scaling,
        "Steps of training": f"{trained.step:,} of {cfg.steps:,}",
        "Returns here": ", ".join(f"{value:.4g}" for value in returns),
    }
