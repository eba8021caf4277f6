"""argparse over the configs: every field is a flag, config files are read first, and pydantic validates values."""

from __future__ import annotations

import argparse
import inspect
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
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
OPTIONS = "Options"


class OutputOptions(Config):
    """Where results go."""

    GROUP: ClassVar[str] = "Output"

    json_: bool = Field(
        default=False, description="print one JSON document on standard output; progress goes to standard error"
    )


class StoreOptions(OutputOptions):
    """Where runs are stored and results go."""

    GROUP: ClassVar[str] = "Output"

    store: str | None = Field(
        default=None,
        description="directory of stored runs; none: $WHENCE_STORE, or else ./whence-runs",
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

    print_config: bool = Field(
        default=False, description="print the complete configuration as JSON, and exit without running anything"
    )


@dataclass(frozen=True)
class Invocation:
    """One call of a verb: the words that name it, its description and the arguments after it."""

    words: tuple[str, ...]
    description: str
    arguments: list[str]

    @property
    def prog(self) -> str:
        return " ".join(("whence", *self.words))

    @property
    def command(self) -> str:
        """The command as it was typed, for pages and documents."""
        return shlex.join(["whence", *self.words, *self.arguments])

    def parse(
        self, config_class: type[S], options_class: type[Chosen], presets: Presets[Any] | None = None, title: str = ""
    ) -> tuple[S, Chosen]:
        """The config from defaults, then `--config FILE` or `--preset NAME`, then flags and words; and the options.

        title: of the config's own fields in the help. Exits after `--help`.
        """
        parser = _Parser(self.prog, self.description)
        own, *nested = _groups(config_class, title or OPTIONS)
        parser.add_groups([own], pairs=True)
        parser.add_config_files(presets)
        parser.add_groups(nested, pairs=True)
        parser.add_groups(_groups(options_class))
        given = parser.parse(self.arguments)
        path, preset = given.get(CONFIG), given.get(PRESET)
        if presets and preset is not None:
            if path is not None:
                raise UserError("preset: expected --preset or --config, got both. Pass one of them.")
            path = str(presets.path(preset))
        config = config_class if path is None else config_class.read(read_document(Path(path), "config"))
        return config_class.read(_updated(config, given)), options_class.read(_updated(options_class, given))

    def options(self, options_class: type[Chosen]) -> Chosen:
        """For verbs without a config. Exits after `--help`."""
        parser = _Parser(self.prog, self.description)
        parser.add_groups(_groups(options_class))
        return options_class.read(_updated(options_class, parser.parse(self.arguments)))


@dataclass(frozen=True)
class Verb:
    """A subcommand. Lists of verbs show the first line of its description: imperative, without a full stop."""

    description: str
    run: Callable[[Invocation], int]

    @property
    def summary(self) -> str:
        return self.description.split("\n")[0].rstrip(".")


@dataclass(frozen=True)
class _Group:
    """A panel of the help."""

    title: str
    about: str | None
    options: list[Option]


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Shows an option that takes several values as `--seeds INT …`."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        return f"{action.metavar} …" if action.nargs == "*" else super()._format_args(action, default_metavar)


class _Parser:
    """An argument parser that leaves values as text, and its help."""

    def __init__(self, prog: str, description: str) -> None:
        width = min(shutil.get_terminal_size().columns, WIDEST)
        summary, _, rest = description.partition("\n")
        rest = rest.replace("\n  whence ", "\nExamples:\n  whence ", 1)
        self.parser = argparse.ArgumentParser(
            prog,
            description=f"{summary.rstrip('.')}.\n{rest}",
            formatter_class=lambda prog: _HelpFormatter(prog, max_help_position=28, width=width),
            argument_default=argparse.SUPPRESS,
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
        )
        self.words: Option | None = None

    def add_groups(self, groups: Sequence[_Group], *, pairs: bool = False) -> None:
        """One flag per field.

        pairs: `--flag` and `--no-flag`, since a file may have set either.
        """
        for each in groups:
            group = self.parser.add_argument_group(each.title, each.about)
            for option in each.options:
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
        title, names = ("Presets and files", "a preset or a file") if presets else ("Files", "a file")
        group = self.parser.add_argument_group(
            title, f"Flags override {names}; the value 'none' resets an option that {names} has set."
        )
        if presets:
            text = f"Start from a preset ('{presets.command}' lists them)"
            group.add_argument(PRESET, dest=PRESET, metavar="NAME", help=text)
        text = "Start from a YAML or JSON file that sets any of these options"
        group.add_argument(CONFIG, dest=CONFIG, metavar="FILE", help=text)

    def parse(self, arguments: list[str]) -> dict[str, Any]:
        """Values by flag; plain words are listed under the flag of the positional field."""
        if "-h" in arguments or "--help" in arguments:
            self._print_help()
            raise SystemExit(0)
        try:
            namespace, words = self.parser.parse_known_args(arguments)
        except argparse.ArgumentError as error:
            text = "expected a value, got none" if error.message.startswith("expected") else error.message
            raise UserError(f"{error.argument_name}: {text}. See '{self.parser.prog} --help'.") from None
        given = vars(namespace)
        for word in words:
            if word.startswith("-"):
                close = hint(word, self.parser._option_string_actions)
                raise UserError(f"{word}: no such option.{close} See '{self.parser.prog} --help'.")
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


def _groups(config_class: type[Config], title: str = OPTIONS) -> list[_Group]:
    """Fields of the class itself, of its parents that name a group, and of nested configs."""
    classes = config_class.__mro__
    # a class that narrows a field leaves it in the group of the class that introduced it
    owners = {name: owner for owner in classes for name in vars(owner).get("__annotations__", {})}
    groups = {(name := vars(owner).get("GROUP", title)): _Group(name, None, []) for owner in classes}
    for option in options_of(config_class):
        first = option.path[0]
        if len(option.path) == 1:
            name = vars(owners[first]).get("GROUP", title)
        else:
            name = first.replace("_", " ").capitalize()
            about = inspect.getdoc(config_class.model_fields[first].get_default())
            groups.setdefault(name, _Group(name, about, []))
        groups[name].options.append(option)
    return [group for group in groups.values() if group.options]


def _help(option: Option) -> str:
    """What the option is, the names that may be chosen, and its default."""
    unset = option.unset if option.value in (NONE, "", ()) else None
    text, names = option.purpose if unset else option.description, option.variants
    first, *_ = text.split(" ")
    if first.isalpha() and first not in (*names, *(option.choices or ())):
        text = text[:1].upper() + text[1:]
    if any(name not in text for name in names) and len(listed := ", ".join(names)) < WIDEST:
        text += f". One of: {listed}"
    if default := unset or _default(option):
        text += f" (default: {default})"
    return text.replace("%", "%%")


def _default(option: Option) -> str:
    """As help shows it: empty where there is none, or where the description states it."""
    if option.positional or "default" in option.description.lower():
        return ""
    if option.required:
        return "required"
    if isinstance(option.value, bool):
        return "on" if option.value else ""
    if isinstance(option.value, tuple):
        return " ".join(option.value)
    return "" if option.value == NONE and not option.variants else option.value.removesuffix(".0")


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
