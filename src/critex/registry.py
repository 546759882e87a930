"""Registries of named objects: critex's own, and those that installed packages add through entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from critex.errors import UserError, unknown


class Registry(Mapping[str, Any]):
    """A mapping from names to objects that are imported on first use.

    `own` maps a name to `"module"` or `"module:object"`. A package adds to it with an entry point in the group
    `critex.<kind>s`, for example in its pyproject.toml:

        [project.entry-points."critex.explorers"]
        my_method = "my_package.my_module:MyExplorer"

    critex's own names cannot be reused.
    """

    def __init__(self, kind: str, own: Mapping[str, str]) -> None:
        self.kind, self.group = kind, f"critex.{kind}s"
        self.own = {name: EntryPoint(name, value, self.group) for name, value in own.items()}

    def added(self) -> dict[str, EntryPoint]:
        """Entries added by installed packages, by name."""
        points = sorted(entry_points(group=self.group), key=lambda point: (point.name, point.value))
        return {point.name: point for point in points if point.name not in self.own}

    def __getitem__(self, name: str) -> Any:
        point = self.own.get(name) or self.added().get(name)
        if point is None:
            raise KeyError(name)
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            if name in self.own:
                raise
            raise UserError(f"{self.kind} {name!r} ({point.value}) cannot be imported: {error}") from error

    def get_or_error(self, name: str) -> Any:
        """The object of that name; a `UserError` with near matches if there is none."""
        if name not in self:
            raise unknown(self.kind, name, self)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.added()

    def __iter__(self) -> Iterator[str]:
        return iter([*self.own, *self.added()])

    def __len__(self) -> int:
        return len(list(iter(self)))
