"""argparse over the configs: every field is a flag, a config file fills in first, and pydantic alone judges values."""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import Field

from whence.config import Config
from whence.errors import UserError, nearest, not_allowed
from whence.experiments.options import NONE, Option, options_of, set_fields
from whence.experiments.saved import CONFIG_FILES, Presets
from whence.system import Device

if TYPE_CHECKING:
    from whence.execution.options import ExecutionOptions

S = TypeVar("S", bound=Config)
Chosen = TypeVar("Chosen", bound="Output")
CONFIG, PRESET = "--config", "--preset"
WIDEST = 110


class Output(Config):
    """Where results go."""

    GROUP: ClassVar[str] = "Output"

    json_: bool = Field(
        default=False, description="print one JSON document on standard output; progress goes to standard error"
    )


class Stored(Output):
    """Where runs are kept and results go."""

    GROUP: ClassVar[str] = "Output"

    store: str | None = Field(default=None, description="directory of runs; none: $WHENCE_STORE, else whence-runs here")


class Engine(Stored):
    """Where and how to run: none of this changes what a run is."""

    GROUP: ClassVar[str] = "Execution"

    workers: int | None = Field(default=None, ge=1, description="processes; none: one per core")
    threads: int | None = Field(default=None, ge=1, description="CPU threads per process; none: the cores, shared out")
    device: Device = Field(default="auto", description="auto takes a GPU if there is one")
    checkpoint_interval: float = Field(default=20.0, ge=0, description="longest work that a kill can cost")
    retry_failed: bool = Field(default=False, description="run again what failed with a non-finite number")
    print_spec: bool = Field(default=False, description="show what would be run, as JSON, and stop")

    @property
    def execution(self) -> ExecutionOptions:
        from whence.execution.options import ExecutionOptions

        return ExecutionOptions(self.workers, self.threads, self.device, self.checkpoint_interval, self.retry_failed)


Action = Callable[[list[str]], int]


def dispatch(arguments: list[str], help: str, actions: dict[str, Action]) -> int:
    """The first word says what to do, the others belong to that."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(help, end="")
        return 0
    if arguments[0] not in actions:
        raise not_allowed("action", arguments[0], list(actions))
    return actions[arguments[0]](arguments[1:])


def parse(
    config_class: type[S],
    options_class: type[Chosen],
    arguments: list[str],
    *,
    prog: str,
    description: str,
    presets: Presets | None = None,
) -> tuple[S, Chosen]:
    """The config from defaults, then `--config FILE` or `--preset NAME`, then the flags; and the options.

    Exits after `--help`.
    """
    parser = _parser(prog, description)
    _add_flags(parser, config_class, pairs=True)
    group = parser.add_argument_group("Configuration files")
    group.add_argument(
        CONFIG, dest=CONFIG, metavar="FILE", help="read any of the fields above from YAML or JSON first; flags win"
    )
    if presets:
        text = f"start from one that comes with whence ('{presets.command}'); flags win"
        group.add_argument(PRESET, dest=PRESET, metavar="NAME", help=text)
    _add_flags(parser, options_class)
    given, words = _parse(parser, arguments)
    _expect_none(words, prog)
    path, preset = given.get(CONFIG), given.get(PRESET)
    if presets and preset is not None:
        if path is not None:
            raise UserError("preset: a config file was named, too. Allowed: one of them.", field="preset")
        path = str(presets.path(preset))
    config = config_class() if path is None else config_class.read(_read_config(path))
    return config_class.read(_updated(config, given)), options_class.read(_updated(options_class(), given))


def parse_options(
    options_class: type[Chosen], arguments: list[str], *, prog: str, description: str, words: bool = False
) -> tuple[Chosen, list[str]]:
    """For verbs without a config: the options, and the plain words among the arguments where the verb takes any."""
    parser = _parser(prog, description)
    _add_flags(parser, options_class)
    given, found = _parse(parser, arguments)
    if not words:
        _expect_none(found, prog)
    return options_class.read(_updated(options_class(), given)), found


def _parser(prog: str, description: str) -> argparse.ArgumentParser:
    width = min(shutil.get_terminal_size().columns, WIDEST)
    return argparse.ArgumentParser(
        prog,
        usage=f"{prog} [options]",
        description=description,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=width),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        exit_on_error=False,
    )


def _add_flags(parser: argparse.ArgumentParser, config_class: type[Config], *, pairs: bool = False) -> None:
    """One flag per field, grouped by the class or the nested config that it belongs to.

    pairs: `--flag` and `--no-flag`, since a file may have set either.
    """
    for (title, about), options in _groups(config_class).items():
        group = parser.add_argument_group(title, about)
        for option in options:
            kind: dict[str, Any] = {"metavar": option.metavar}
            if isinstance(option.value, bool):
                kind = {"action": argparse.BooleanOptionalAction if pairs else "store_true"}
            elif isinstance(option.value, tuple):
                kind["nargs"] = "*"
            group.add_argument(option.flag, dest=option.flag, help=_help(option), **kind)


def _groups(config_class: type[Config]) -> dict[tuple[str, str | None], list[Option]]:
    """By title and description: fields of the class itself, of those it is made from, of nested configs."""
    config = config_class()
    owners = {
        name: owner for owner in reversed(config_class.__mro__) for name in vars(owner).get("__annotations__", {})
    }
    flat = {owner: (vars(owner).get("GROUP", "Options"), None) for owner in config_class.__mro__}
    groups: dict[tuple[str, str | None], list[Option]] = {title: [] for title in flat.values()}
    for option in options_of(config):
        if len(option.path) == 1:
            groups[flat[owners[option.path[0]]]].append(option)
        else:
            nested = getattr(config, option.path[0])
            title = option.path[0].replace("_", " ").capitalize()
            groups.setdefault((title, inspect.getdoc(nested)), []).append(option)
    return {title: options for title, options in groups.items() if options}


def _help(option: Option) -> str:
    text, names = option.description, option.variants
    if any(name not in text for name in names) and len(listed := ", ".join(names)) < WIDEST:
        text += f". One of: {listed}"
    value = " ".join(option.value) or NONE if isinstance(option.value, tuple) else option.value
    if value not in (False, ""):
        text += f" (default: {'on' if value is True else value})"
    return text.replace("%", "%%")


def _parse(parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """What was given, by flag, and the words that belong to no flag."""
    try:
        given, words = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        if "expected" in str(error):
            raise UserError(
                f"{error.argument_name}: a value must follow. See '{parser.prog} --help'.", field=error.argument_name
            ) from None
        raise UserError(f"{error.argument_name}: {error.message}.", field=error.argument_name) from None
    for unknown in words:
        if unknown.startswith("-"):
            match = nearest(unknown, parser._option_string_actions)
            hint = f" Did you mean {match!r}?" if match else ""
            raise UserError(f"{unknown}: no such option. See '{parser.prog} --help'.{hint}", field=unknown)
    return vars(given), words


def _expect_none(words: list[str], prog: str) -> None:
    if words:
        raise UserError(f"{words[0]!r}: not expected here. See '{prog} --help'.", field=words[0])


def _updated(config: Config, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the config has set, with what was given in its place."""
    document = set_fields(config)
    for option in options_of(config):
        if option.flag in given:
            inner = document
            for part in option.path[:-1]:
                inner = inner[part]
            inner[option.path[-1]] = option.parse(given[option.flag])
    return document


def _read_config(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.suffix not in CONFIG_FILES:
        raise UserError(f"config: {name!r} is not a config file. Allowed: FILE.yaml, FILE.json.", field="config")
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"config: {name!r} cannot be read ({error.strerror}).", field="config") from None
    except UnicodeDecodeError:
        raise UserError(f"config: {name!r} is not text.", field="config") from None
    import yaml

    try:
        document = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"config: {name!r} is not valid {path.suffix[1:].upper()}: {reason}", field="config") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise UserError(
            f"config: {name!r} must hold fields and values, not a {type(document).__name__}.", field="config"
        )
    return document
