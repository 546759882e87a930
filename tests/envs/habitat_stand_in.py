"""A stand-in for habitat-lab, which no package index has: one room with a box in it, behind Habitat's documented interface.

y points up, the agent looks along −z, and turns about y. `fault` makes it deviate from Habitat in one respect.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from critex.envs import habitat

LOWER, UPPER = np.array([-4.0, 0.0, -3.0]), np.array([4.0, 2.5, 5.0])
BOX = np.array([1.0, 1.0]), np.array([2.0, 2.5])  # corners (x, z)


def is_free(x: Any, z: Any) -> Any:
    """Inside the walls, half a metre thick, and outside of the box."""
    inside = (abs(x) < 3.5) & (z > -2.5) & (z < 4.5)
    return inside & ~((x > BOX[0][0]) & (x < BOX[1][0]) & (z > BOX[0][1]) & (z < BOX[1][1]))


class Pathfinder:
    """Bounds and the map from above: rows are z, columns x."""

    def get_bounds(self) -> Any:
        return LOWER, UPPER

    def get_topdown_view(self, meters_per_pixel: float, height: float) -> Any:
        assert math.isclose(height, 0.1, rel_tol=1e-6)
        rows, columns = (round((UPPER - LOWER)[axis] / meters_per_pixel) for axis in (2, 0))
        z = LOWER[2] + (np.arange(rows) + 0.5) * meters_per_pixel
        x = LOWER[0] + (np.arange(columns) + 0.5) * meters_per_pixel
        return is_free(*np.meshgrid(x, z))


class Env:
    """`habitat.Env`: episodes, an iterator over them, and a simulator."""

    fault, scenes = "", ("room",)

    def __init__(self, config: Any) -> None:
        self.size = config.size
        self.episodes = [SimpleNamespace(start=(x, z)) for x, z in ((0, 0), (-2, 3), (2, -1))]
        if self.fault == "no episodes":
            self.episodes = []
        if self.fault == "no data":
            raise FileNotFoundError("data/datasets/pointnav/hm3d/v1/val/val.json.gz")
        self.sim = SimpleNamespace(pathfinder=Pathfinder(), get_agent_state=self._state)
        self.episode_iterator: Any = iter(self.episodes)
        self.resets, self.open = 0, True

    def seed(self, seed: int) -> None:
        assert isinstance(seed, int)

    def reset(self) -> Any:
        if self.fault == "no scene":
            raise RuntimeError("ESP_CHECK failed:\n00800-TEEsavR23oF.basis.glb is absent")
        self.x, self.z = next(self.episode_iterator).start
        self.turn, self.episode_over, self.steps = 0.0, False, 0
        self.resets += 1
        return self._sensors()

    def step(self, action: dict[str, str]) -> Any:
        name = action["action"]
        assert not self.episode_over
        self.steps += 1
        if name == "move_forward":
            step = -0.25 if self.fault == "backwards" else 0.25
            x, z = self.x - step * math.sin(self.turn), self.z - step * math.cos(self.turn)
            if is_free(x, z):
                self.x, self.z = x, z
        elif name == "stop":
            self.episode_over = self.fault != "endless"
        else:
            degrees = 30 if self.fault == "turn" else 10
            self.turn += math.radians(degrees if name == "turn_left" else -degrees)
        self.episode_over |= self.steps >= 500
        return self._sensors()

    def close(self) -> None:
        self.open = False

    def _state(self) -> Any:
        half = self.turn / 2
        rotation = SimpleNamespace(w=math.cos(half), x=0.0, y=math.sin(half), z=0.0)
        x = self.x + 100 if self.fault == "lost" else self.x
        return SimpleNamespace(position=np.array([x, 0.1, self.z], np.float32), rotation=rotation)

    def _sensors(self) -> dict[str, Any]:
        noise = self.resets if self.fault == "noise" else 0
        compass = (self.turn + math.pi) % (2 * math.pi) - math.pi
        depth = np.full((self.size, self.size, 1), 2.0 if self.fault == "metres" else 0.2, np.float32)
        return {
            "rgb": np.full((self.size, self.size, 3), 40 + noise, np.uint8),
            "depth": depth,
            "gps": np.array([self.x, self.z], np.float32),
            "compass": np.array([compass], np.float32),
            "pointgoal_with_gps_compass": np.zeros(2, np.float32),
        }


class Sensors(dict[str, Any]):
    """`config.habitat.task.lab_sensors`."""


class ReadWrite:
    def __init__(self, config: Any) -> None:
        self.config = config

    def __enter__(self) -> None:
        self.config.writable = True

    def __exit__(self, *_: object) -> None:
        self.config.writable = False


def get_config(path: str, overrides: list[str]) -> Any:
    """`habitat.get_config`: keeps the overrides, and the size of the images."""
    values = dict(item.split("=", 1) for item in overrides)
    size = int(values["habitat.simulator.agents.main_agent.sim_sensors.rgb_sensor.width"])
    task = SimpleNamespace(lab_sensors=Sensors())
    return SimpleNamespace(path=path, values=values, size=size, habitat=SimpleNamespace(task=task))


def install(monkeypatch: pytest.MonkeyPatch, fault: str = "") -> None:
    """Make `import habitat` find the stand-in."""
    modules: dict[str, dict[str, Any]] = {
        "habitat": {"Env": type("Env", (Env,), {"fault": fault}), "get_config": get_config},
        "habitat.config": {"read_write": ReadWrite},
        "habitat.config.default_structured_configs": {
            "CompassSensorConfig": lambda: "compass",
            "GPSSensorConfig": lambda: "gps",
        },
    }
    coarse = partial(habitat.metres_per_cell, resolution=128)
    monkeypatch.setattr(habitat, "metres_per_cell", coarse)  # 64 times fewer cells, for speed
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
