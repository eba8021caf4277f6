"""Configurations by name: presets of an instrument, comparisons saved in a store, and files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Generic, TypeVar

from whence.config import Config
from whence.errors import UserError, not_allowed
from whence.parsing import LARGEST_CONFIG, ParseError, parse_config
from whence.store import disk
from whence.store.disk import CorruptFileError
from whence.store.files import addressed_name
from whence.store.runs import Store

S = TypeVar("S", bound=Config)
CONFIG_FILES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Presets(Generic[S]):
    """The presets of one instrument: YAML files in the folder `presets` of its package, described by their comments."""

    package: str
    config: type[S]
    """The configuration that they set: of comparisons or of single runs"""

    @property
    def command(self) -> str:
        """The command that lists them."""
        return f"whence {self.package.split('.')[-1]} presets"

    def names(self) -> list[str]:
        return sorted(Path(str(file)).stem for file in self._folder().iterdir() if file.name.endswith(".yaml"))

    def path(self, name: str) -> Path:
        if name not in self.names():
            raise not_allowed("preset", name, self.names())
        return Path(str(self._folder() / f"{name}.yaml"))

    def about(self, name: str) -> str:
        """The comment of a preset: its purpose, its command, the time it takes, expected results."""
        lines = self.path(name).read_text().splitlines()
        return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines if line.startswith("#"))

    def read(self, name: str) -> dict[str, Any]:
        """The fields that it sets."""
        return read_document(self.path(name), "preset")

    def load(self, name: str) -> S:
        return read_config(self.path(name), self.config)

    def _folder(self) -> Any:
        return resources.files(self.package) / "presets"


def save_config(kind: str, config: Config, store: Store) -> Path:
    """Save a configuration. `kind` is the instrument, with which the name of the file begins."""
    path = config_path(kind, config, store)
    store.make_room(path)
    disk.write_atomically(path, _bytes(config))
    return path


def config_path(kind: str, config: Config, store: Store) -> Path:
    """Absolute path of a saved configuration, which commands and pages refer to."""
    return store.reports.absolute() / addressed_name(kind, _bytes(config), ".json")


def saved_configs(kind: str, store: Store) -> list[Path]:
    """Paths of saved configurations, latest first."""
    names = re.compile(rf"{kind}-[0-9a-f]{{16}}\.json")
    return disk.latest_first(path for path in disk.entries(store.reports.absolute()) if names.fullmatch(path.name))


def read_config(path: Path, config: type[S]) -> S:
    return config.read(read_document(path, "comparison"))


def read_document(path: Path, field: str) -> dict[str, Any]:
    """The fields that a file sets. Raises UserError, whose message begins with `field`, if it cannot be read."""
    name = str(path)
    if path.suffix not in CONFIG_FILES:
        raise UserError(f"{field}: {name!r} is not a config file. Allowed: FILE.yaml, FILE.yml, FILE.json.")
    try:
        raw = disk.read(path.resolve(), LARGEST_CONFIG)
    except CorruptFileError as damage:
        raise UserError(f"{field}: {name!r} cannot be read: {damage.reason}.") from None
    except (OSError, ValueError, RuntimeError) as error:  # not a valid file name: a null byte, a loop of links
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{field}: {name!r} cannot be read ({reason}).") from None
    try:
        return parse_config(raw, json_only=path.suffix == ".json")
    except ParseError as error:
        raise UserError(f"{field}: {name!r}: {error}.") from None


def find_config(text: str, store: Store, kinds: Mapping[str, Presets[Any] | None]) -> tuple[str, Path]:
    """The instrument and the file of a comparison, from a preset or the beginning of the name of a saved one."""
    for kind, presets in kinds.items():
        if presets and text in presets.names():
            return kind, presets.path(text)
    saved = [(kind, path) for kind in kinds for path in saved_configs(kind, store)]
    # the beginning of the name, with or without the instrument, or the longer name of a report
    matches = [
        (kind, path)
        for kind, path in saved
        if text
        and (path.stem.removeprefix(f"{kind}-").startswith(text.removeprefix(f"{kind}-")) or text.startswith(path.stem))
    ]
    if len(matches) == 1:
        return matches[0]
    known = [path.stem for _, path in matches or saved]
    presets = [name for those in kinds.values() if those for name in those.names()]
    raise UserError(
        f"comparison: {text!r} {'is ambiguous' if matches else 'is not known'}. Allowed: a preset "
        f"({', '.join(presets)}), a config file, or a comparison in {store.root} ({', '.join(known) or 'none yet'})."
    )


def _bytes(config: Config) -> bytes:
    return (json.dumps(config.model_dump(mode="json"), indent=1) + "\n").encode()
