"""Ids that name a module, `my_module:MyEnv-v0`: making them imports it, which executes its code."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from critex.errors import UserError


def import_env(env_id: str) -> None:
    """Import the module that an id names, if any; modules in the working directory are found too."""
    module, colon, _ = env_id.partition("?")[0].partition(":")
    if not colon:
        return
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that no file here hides an installed module
    try:
        import_module(module)
    except Exception as error:  # whatever somebody else's module raises
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{env_id} cannot be made: importing {module} failed ({reason})") from error


def require_trusted(run: Path, env_id: Any, allow_import: bool) -> None:
    """Import the module that a run's config names only if the user allows it: the file may be somebody else's."""
    if isinstance(env_id, str) and ":" in env_id.partition("?")[0]:
        if not allow_import:
            module = env_id.partition(":")[0]
            raise UserError(
                f"{run} uses the environment {env_id}, which executes the module {module}; "
                "add --allow-import if you trust it"
            )
        import_env(env_id)
