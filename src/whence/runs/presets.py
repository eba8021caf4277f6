"""Presets that come with an instrument: YAML files in its folder `presets`, whose first comment says what they are."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from whence.errors import not_allowed


@dataclass(frozen=True)
class Presets:
    """Those of one package."""

    package: str
    verb: str
    """The command that lists them"""

    def names(self) -> list[str]:
        return sorted(Path(str(file)).stem for file in self._folder().iterdir() if file.name.endswith(".yaml"))

    def path(self, name: str) -> Path:
        if name not in self.names():
            raise not_allowed("preset", name, self.names())
        return Path(str(self._folder() / f"{name}.yaml"))

    def about(self, name: str) -> str:
        """The words at its head: what it is, what it costs, what to expect."""
        lines = self.path(name).read_text().splitlines()
        return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines if line.startswith("#"))

    def read(self, name: str) -> dict[str, Any]:
        import yaml

        return yaml.safe_load(self.path(name).read_text())

    def _folder(self) -> Any:
        return resources.files(self.package) / "presets"
