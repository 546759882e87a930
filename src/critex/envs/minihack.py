"""MiniHack and NetHack: seeds that determine the level, true final observations, and info["position"].

MiniHack draws some of its levels outside NetHack's seeded generators: MultiRoom takes its map from a MiniGrid environment
that is never seeded, Boxoban picks its levels with Python's global generator, and the phase of the moon comes from the
clock. Here one seed determines all of them.
"""

from __future__ import annotations

import random
import subprocess
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from critex.envs.position import counts_grids, digest
from critex.errors import UserError

OBSERVATIONS = ("glyphs", "blstats", "message")
"""The observations of the paper's network: the map [21, 79], the status line [27] and the message [256]."""
DEFAULTS: dict[str, Any] = {"observation_keys": OBSERVATIONS, "fix_moon_phase": True}
"""Keywords of every environment made here."""


class MiniHack(gym.Wrapper[Any, Any, Any, Any]):
    """A MiniHack or NetHack environment whose episodes are a function of their seed.

    `reset(seed=s)` gives the same level and the same random events in every process; without a seed the episodes
    continue the sequence that the last seed started. A timeout counts as truncated, whereas NLE calls it terminated.
    The final observation is the agent's last screen; NLE itself returns a blank one, since it has quit the game by then.
    info["position"] is (row, column); with `position="grid"` a hash of all glyphs on the map is its third number.
    """

    def __init__(self, env: gym.Env[Any, Any], position: str = "cell") -> None:
        super().__init__(env)
        self._whole_grid = counts_grids(position)
        self.game = game = cast(Any, env.unwrapped)
        self._draws = np.random.default_rng()
        self._last: tuple[NDArray[Any], ...] | None = None  # the agent's last screen
        self._quit, self._click_through = game._quit_game, game._perform_known_steps
        game._quit_game, game._perform_known_steps = self._before_quitting, self._before_clicking
        if hasattr(game, "_patch_nhdat"):
            game._patch_nhdat = self._compile_level

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Begin the episode of this seed."""
        if seed is not None:
            self._draws = np.random.default_rng(seed)
        core, display, layout, choice = map(int, self._draws.integers(2**62, size=4))
        try:
            self.game.nethack.set_initial_seeds(core, display, False)
        except RuntimeError:  # NetHackChallenge
            raise UserError(f"{self.game.spec.id} forbids seeds, so no run on it could be repeated") from None
        # The penalty for steps without game time must not carry over to the next episode.
        self.game._frozen_steps = 0
        if hasattr(self.game, "minigrid_env"):
            self.game.minigrid_env.unwrapped.np_random = np.random.default_rng(layout)
        before = random.getstate()
        random.seed(choice)
        try:
            obs, info = self.env.reset(seed=seed, **({} if options is None else {"options": options}))
        finally:
            random.setstate(before)
        return _copied(obs), info | self._position(self.game.last_observation)

    def step(self, action: Any) -> tuple[dict[str, NDArray[Any]], Any, bool, bool, dict[str, Any]]:
        """One action of the game."""
        self._last = None
        obs, reward, terminated, truncated, info = self.env.step(action)
        if info["end_status"] == self.game.StepStatus.ABORTED:
            terminated, truncated = False, True
        seen = self._last or self.game.last_observation
        if self._last is not None:
            obs = self.game._get_observation(self._last)
        return _copied(obs), reward, terminated, truncated, info | self._position(seen)

    def _position(self, seen: tuple[NDArray[Any], ...]) -> dict[str, Any]:
        column, row = seen[self.game._blstats_index][:2]
        if not self._whole_grid:
            return {"position": np.array((row, column))}
        return {"position": np.array((row, column, digest(seen[self.game._glyph_index].tobytes())))}

    def _before_quitting(self, observation: Any, *rest: Any) -> Any:
        """The task has ended while the game has not; keep the screen before NLE quits the game."""
        self._last = tuple(part.copy() for part in observation)
        return self._quit(observation, *rest)

    def _before_clicking(self, observation: Any, *rest: Any, **options: Any) -> Any:
        """The game has ended; keep the screen before NLE clicks through the farewell."""
        if observation[self.game._program_state_index][0]:
            self._last = tuple(part.copy() for part in observation)
        return self._click_through(observation, *rest, **options)

    def _compile_level(self, description: str) -> None:
        """Make `description` the level of the next reset.

        MiniHack does this with a shell script of six processes, at every reset of MultiRoom, and keeps the old level if
        one of them fails. Here it takes one process, and a failure is an error.
        """
        from minihack.base import HACKDIR, LIB_DIR, PATH_DAT_DIR

        home = Path(self.game.nethack._vardir)
        library = home / "lib"
        if not library.exists():
            library.mkdir()
            for file in Path(LIB_DIR).iterdir():
                (library / file.name).write_bytes(file.read_bytes())
        if description.endswith(".des"):  # a file, as given or among MiniHack's own
            path = Path(description)
            description = (path if path.exists() else Path(PATH_DAT_DIR) / path).read_text()
        (home / "mylevel.des").write_text(description)
        compiled = subprocess.run(
            [f"{HACKDIR}/lev_comp", "../mylevel.des"],
            cwd=library,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if compiled.returncode:
            raise UserError(f"cannot compile a MiniHack level: {' '.join(compiled.stdout.split())}")
        (home / "nhdat.new").write_bytes(archive(library))
        (home / "nhdat.new").replace(home / "nhdat")


def archive(directory: Path) -> bytes:
    """The files of a directory as NetHack's data archive `nhdat`, equal to what its tool `dlb` writes.

    A line of numbers (version, number of entries, total length of their names, where the data begin, total size), one
    line per entry (n for "not compressed", name, offset), then the data. The first entry is the directory itself.
    """
    files = sorted(directory.iterdir())
    data = [file.read_bytes() for file in files]
    names = ["Directory", *(file.name for file in files)]
    letters = sum(len(name) + 1 for name in names)
    begin = 40 + sum(len(f"n{name} {0:8}\n") for name in names)
    offsets = [0, *accumulate(map(len, data), initial=begin)]
    header = f"{1:3} {len(names):8} {letters:8} {begin:8} {offsets.pop():8}\n"
    entries = (f"n{name} {offset:8}\n" for name, offset in zip(names, offsets, strict=True))
    return (header + "".join(entries)).encode() + b"".join(data)


def _copied(obs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """NLE writes every observation into the same memory."""
    return {key: part.copy() for key, part in obs.items()}
