"""critex: the critic as an explorer.

Exploration bonuses from the value network that an RL algorithm already has.

`import critex` is cheap: torch and the rest are loaded when a name first needs them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from critex.errors import UserError

if TYPE_CHECKING:
    from critex.bonus import Gram
    from critex.facade import CAE, CAEPlus
    from critex.networks.hidden import last_hidden

__all__ = ["CAE", "CAEPlus", "Gram", "UserError", "last_hidden"]
__version__ = "0.1.0"

_MODULES = {
    "CAE": "critex.facade",
    "CAEPlus": "critex.facade",
    "Gram": "critex.bonus",
    "last_hidden": "critex.networks.hidden",
}
PLUGINS = ("audit", "rllib", "sb3", "torchrl")
"""`critex.sb3` and so on, also as in `from critex.sb3 import …`: each needs a library that may not be installed."""


def __getattr__(name: str) -> Any:
    """Import a public name, `critex.envs` or a plug-in when it is first used (PEP 562)."""
    if name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        import_module("critex.envs")
        return value
    if name in ("envs", *PLUGINS):
        return import_module(f"critex.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _RegisterWithGymnasium:
    """Import hook: importing gymnasium also imports `critex.envs`, which registers DeepSea and RiverSwim."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if "critex.envs" not in sys.modules:  # otherwise critex.envs itself is importing gymnasium
                    import_module("critex.envs")

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    import_module("critex.envs")
else:
    sys.meta_path.insert(0, _RegisterWithGymnasium())
