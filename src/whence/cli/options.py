"""argparse over the configs: every field is a flag, a config file fills in first, and pydantic alone judges values."""

from __future__ import annotations

import argparse
import inspect
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from whence.config import Config
from whence.errors import UserError, hint
from whence.execution.options import ExecutionOptions
from whence.experiments.options import NONE, Option, metavar, options_of, set_fields
from whence.experiments.saved import Presets, read_document
from whence.store.runs import Store

S = TypeVar("S", bound=Config)
Chosen = TypeVar("Chosen", bound="OutputOptions")
CONFIG, PRESET = "--config", "--preset"
WIDEST = 110


class OutputOptions(Config):
    """Where results go."""

    GROUP: ClassVar[str] = "Output"

    json_: bool = Field(
        default=False, description="print one JSON document on standard output; progress goes to standard error"
    )


class StoreOptions(OutputOptions):
    """Where runs are kept and results go."""

    GROUP: ClassVar[str] = "Output"

    store: str | None = Field(
        default=None,
        description="directory of runs; none: $WHENCE_STORE, else whence-runs here",
        json_schema_extra=metavar("DIR"),
    )

    def open_store(self) -> Store:
        """A store that is named must exist; the default one may still be empty."""
        store = Store(self.store)
        if self.store:
            store.must_exist()
        return store


class EngineOptions(ExecutionOptions, StoreOptions):
    """Where and how to run: none of this changes what a run is."""

    GROUP: ClassVar[str] = "Execution"

    print_config: bool = Field(default=False, description="print the complete configuration as JSON and stop")


@dataclass(frozen=True)
class Invocation:
    """One call of a verb: the words that name it, its description, and the arguments that follow."""

    words: tuple[str, ...]
    description: str
    arguments: list[str]

    @property
    def prog(self) -> str:
        return " ".join(("whence", *self.words))

    @property
    def command(self) -> str:
        """What was typed, for pages and documents."""
        return shlex.join(["whence", *self.words, *self.arguments])

    def parse(
        self, config_class: type[S], options_class: type[Chosen], presets: Presets[Any] | None = None
    ) -> tuple[S, Chosen]:
        """The config from defaults, then `--config FILE` or `--preset NAME`, then flags and words; and the options.

        Exits after `--help`.
        """
        parser = _Parser(self.prog, self.description)
        parser.add_options(config_class, pairs=True)
        parser.add_config_files(presets)
        parser.add_options(options_class)
        given = parser.parse(self.arguments)
        path, preset = given.get(CONFIG), given.get(PRESET)
        if presets and preset is not None:
            if path is not None:
                raise UserError("preset: a config file was named, too. Allowed: one of them.")
            path = str(presets.path(preset))
        config = config_class if path is None else config_class.read(read_document(Path(path), "config"))
        return config_class.read(_updated(config, given)), options_class.read(_updated(options_class, given))

    def options(self, options_class: type[Chosen]) -> Chosen:
        """For verbs without a config. Exits after `--help`."""
        parser = _Parser(self.prog, self.description)
        parser.add_options(options_class)
        return options_class.read(_updated(options_class, parser.parse(self.arguments)))


@dataclass(frozen=True)
class Verb:
    """The first line of the description is what lists of verbs show: imperative, without a full stop."""

    description: str
    run: Callable[[Invocation], int]

    @property
    def summary(self) -> str:
        return self.description.split("\n")[0].rstrip(".")


class _Parser:
    """An argument parser whose values are text, and what it takes to explain it."""

    def __init__(self, prog: str, description: str) -> None:
        width = min(shutil.get_terminal_size().columns, WIDEST)
        self.parser = argparse.ArgumentParser(
            prog,
            description=description,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=width),
            argument_default=argparse.SUPPRESS,
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
        )
        self.words: Option | None = None

    def add_options(self, config_class: type[Config], *, pairs: bool = False) -> None:
        """One flag per field, grouped by the class or the nested config that it belongs to.

        pairs: `--flag` and `--no-flag`, since a file may have set either.
        """
        for (title, about), options in _groups(config_class).items():
            group = self.parser.add_argument_group(title, about)
            for option in options:
                kind: dict[str, Any] = {"metavar": option.metavar}
                if option.positional:
                    self.words = option
                    continue
                if isinstance(option.value, bool):
                    kind = {"action": argparse.BooleanOptionalAction if pairs else "store_true"}
                elif isinstance(option.value, tuple):
                    kind["nargs"] = "*"
                group.add_argument(option.flag, dest=option.flag, help=_help(option), **kind)

    def add_config_files(self, presets: Presets | None) -> None:
        group = self.parser.add_argument_group("Configuration files")
        text = "read any of the fields above from YAML or JSON first; flags win"
        group.add_argument(CONFIG, dest=CONFIG, metavar="FILE", help=text)
        if presets:
            text = f"start from one that comes with whence ('{presets.command}'); flags win"
            group.add_argument(PRESET, dest=PRESET, metavar="NAME", help=text)

    def parse(self, arguments: list[str]) -> dict[str, Any]:
        """What was given, by flag; plain words under the flag of the field that takes them."""
        if "-h" in arguments or "--help" in arguments:
            self._print_help()
            raise SystemExit(0)
        try:
            namespace, words = self.parser.parse_known_args(arguments)
        except argparse.ArgumentError as error:
            text = "a value must follow" if error.message.startswith("expected") else error.message
            raise UserError(f"{error.argument_name}: {text}. See '{self.parser.prog} --help'.") from None
        given = vars(namespace)
        for word in words:
            if word.startswith("-"):
                close = hint(word, self.parser._option_string_actions)
                raise UserError(f"{word}: no such option. See '{self.parser.prog} --help'.{close}")
        if words and self.words:
            taken = len(words) if isinstance(self.words.value, tuple) else 1
            given[self.words.flag] = words if isinstance(self.words.value, tuple) else words[0]
            words = words[taken:]
        if words:
            raise UserError(f"{words[0]!r}: not expected here. See '{self.parser.prog} --help'.", field=words[0])
        return given

    def _print_help(self) -> None:
        usage = [self.parser.prog]
        if self.words:
            listed = isinstance(self.words.value, tuple)
            usage.append(f"[{self.words.metavar} …]" if listed else self.words.metavar)
            group = self.parser.add_argument_group("Arguments")
            group.add_argument("words", nargs="*", metavar=self.words.metavar, help=_help(self.words))
            groups = self.parser._action_groups
            groups.insert(2, groups.pop())  # before the flags; the first two are argparse's own, and empty
        self.parser.usage = " ".join([*usage, "[options]"])
        print(self.parser.format_help(), end="")


def _groups(config_class: type[Config]) -> dict[tuple[str, str | None], list[Option]]:
    """By title and description: fields of the class itself, of those it is made from, of nested configs."""
    classes = config_class.__mro__
    # a class that narrows a field leaves it in the group of the class that introduced it
    owners = {name: owner for owner in classes for name in vars(owner).get("__annotations__", {})}
    flat = {owner: (vars(owner).get("GROUP", "Options"), None) for owner in classes}
    groups: dict[tuple[str, str | None], list[Option]] = {title: [] for title in flat.values()}
    for option in options_of(config_class):
        if len(option.path) == 1:
            groups[flat[owners[option.path[0]]]].append(option)
        else:
            about = inspect.getdoc(config_class.model_fields[option.path[0]].get_default())
            groups.setdefault((option.path[0].replace("_", " ").capitalize(), about), []).append(option)
    return {title: options for title, options in groups.items() if options}


def _help(option: Option) -> str:
    text, names = option.description, option.variants
    if any(name not in text for name in names) and len(listed := ", ".join(names)) < WIDEST:
        text += f". One of: {listed}"
    value = " ".join(option.value) or NONE if isinstance(option.value, tuple) else option.value
    if value not in (False, "") and not option.positional:
        text += f" (default: {'on' if value is True else value})"
    return text.replace("%", "%%")


def _updated(config: Config | type[Config], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the config has set, with what was given in its place."""
    document = set_fields(config)
    for option in options_of(config):
        if option.flag in given:
            inner = document
            for part in option.path[:-1]:
                inner = inner[part]
            inner[option.path[-1]] = option.parse(given[option.flag])
    return document
