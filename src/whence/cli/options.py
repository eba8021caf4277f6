"""tyro over the specs: every field is a flag, a config file fills in first, and pydantic alone judges values.

tyro is shown a twin of the spec whose leaves are text. It gives flags, grouping and help; the text then goes
to the spec itself, so that a bad value gets the same message from the command line and from a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import tyro
from pydantic import BaseModel, Field

from whence.config import Config
from whence.errors import UserError, nearest, not_allowed
from whence.experiments.options import as_set, is_group, is_list, leaves, metavar, written
from whence.experiments.saved import Presets
from whence.store.runs import Store
from whence.system import Device

if TYPE_CHECKING:
    from whence.experiments.comparison import ExecutionOptions

S = TypeVar("S", bound=Config)
Chosen = TypeVar("Chosen", bound="Output")


class Output(Config):
    """Where results go."""

    json_: bool = Field(
        default=False, description="print one JSON document on standard output; progress goes to standard error"
    )


class Stored(Output):
    """Where runs are kept and results go."""

    store: str | None = Field(default=None, description="directory of runs; none: $WHENCE_STORE, else whence-runs here")


class Engine(Stored):
    """Where and how to run: none of this changes what a run is."""

    workers: int | None = Field(default=None, ge=1, description="processes; none: one per core")
    threads: int | None = Field(default=None, ge=1, description="CPU threads per process; none: the cores, shared out")
    device: Device = Field(default="auto", description="auto takes a GPU if there is one")
    checkpoint_seconds: float = Field(default=20.0, ge=0, description="longest work that a kill can cost")
    retry_failed: bool = Field(default=False, description="run again what failed with a non-finite number")
    print_spec: bool = Field(default=False, description="show what would be run, as JSON, and stop")

    @property
    def execution(self) -> ExecutionOptions:
        from whence.experiments.comparison import ExecutionOptions

        return ExecutionOptions(self.workers, self.threads, self.device, self.checkpoint_seconds, self.retry_failed)


Action = Callable[[list[str]], int]


def dispatch(arguments: list[str], help: str, actions: dict[str, Action]) -> int:
    """The first word says what to do, the others belong to that."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(help, end="")
        return 0
    if arguments[0] not in actions:
        raise not_allowed("action", arguments[0], list(actions))
    return actions[arguments[0]](arguments[1:])


def elsewhere(store: Store) -> list[str]:
    """The option that leads back to this store, where it is not the one that would be taken anyhow."""
    return [] if Store().root.absolute() == store.root.absolute() else ["--store", str(store.root)]


class Nothing(Config):
    """For verbs that have options but no spec."""


def parse(
    spec_class: type[S],
    options_class: type[Chosen],
    arguments: list[str],
    *,
    prog: str,
    description: str,
    presets: Presets | None = None,
) -> tuple[S, Chosen]:
    """The spec from defaults, then `--config FILE` or `--preset NAME`, then the flags; and the options.

    Exits after `--help`.
    """
    arguments, config = _take(arguments, "--config", "FILE.yaml, FILE.json")
    if presets:
        arguments, preset = _take(arguments, "--preset", f"see '{presets.command}'")
        if preset and config:
            raise UserError("preset: a config file was named, too. Allowed: one of them.", field="preset")
        config = str(presets.path(preset)) if preset else config
        description += f"\n\n--preset NAME starts from one that comes with whence ('{presets.command}'); flags win."
    spec = spec_class.read(_read_config(config)) if config else spec_class()
    description += "\n\n--config FILE reads any of these fields from YAML or JSON first; flags win."
    values, chosen, words = _ask_tyro(spec, options_class(), arguments, prog, description)
    if words:
        raise UserError(f"{words[0]!r}: not expected here. See '{prog} --help'.", field=words[0])
    return spec_class.read(_untwin(values, spec)), options_class.read(_untwin(chosen, options_class()))


def parse_options(
    options_class: type[Chosen], arguments: list[str], *, prog: str, description: str, words: bool = False
) -> tuple[Chosen, list[str]]:
    """For verbs without a spec: the options, and the plain words among the arguments where the verb takes any."""
    _, chosen, found = _ask_tyro(Nothing(), options_class(), arguments, prog, description)
    if found and not words:
        raise UserError(f"{found[0]!r}: not expected here. See '{prog} --help'.", field=found[0])
    return options_class.read(_untwin(chosen, options_class())), found


def _ask_tyro(
    spec: Config, options: Output, arguments: list[str], prog: str, description: str
) -> tuple[Any, Any, list[str]]:
    """What was given for the spec, what was given for the options, and the words that are neither."""
    group = type(options).__name__.lower()
    twin = _twin(spec, (group, _twin(options)))
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            values, rest = tyro.cli(
                type(twin),
                args=arguments,
                default=twin,
                prog=prog,
                description=description,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
                return_unknown_args=True,
            )
    except SystemExit as leaving:
        if not leaving.code:  # after --help
            raise
        words = re.sub(r"[╭╮╰╯│─]+", " ", complaint.getvalue()).split()
        raise UserError(f"options: {' '.join(words)}", field="options") from None
    for unknown in rest:
        if unknown.startswith("-"):
            match = nearest(unknown, [leaf.flag for part in (spec, options) for leaf in leaves(part)])
            hint = f" Did you mean {match!r}?" if match else ""
            raise UserError(f"{unknown}: no such option. See '{prog} --help'.{hint}", field=unknown)
    return values, getattr(values, group), rest


def _take(arguments: list[str], option: str, allowed: str) -> tuple[list[str], str | None]:
    """The arguments without `option VALUE`, and the value."""
    kept, value, rest = [], None, iter(arguments)
    for argument in rest:
        name, equals, text = argument.partition("=")
        if name == option:
            value = text if equals else next(rest, None)
            if not value:
                raise UserError(f"{option}: a value must follow. Allowed: {allowed}.", field=option.strip("-"))
        else:
            kept.append(argument)
    return kept, value


def _read_config(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.suffix not in (".yaml", ".yml", ".json"):
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


def _twin(spec: BaseModel, *groups: tuple[str, Any]) -> Any:
    """A dataclass instance that mirrors a spec: nested specs stay groups, every other value becomes text.

    What nobody has set is shown as it is by default, not as the spec filled it in: what a task or a mixer brings along
    must follow the task and the mixer that the flags choose.
    """
    fields: list[tuple[str, Any, Any]] = []
    for name, info in type(spec).model_fields.items():
        value, flag, about = as_set(spec, name), name.rstrip("_"), info.description or ""
        if is_group(value):
            inner = _twin(value)
            fields.append((flag, type(inner), dataclasses.field(default=inner)))
            continue
        if isinstance(value, bool):
            kind = Annotated[bool, tyro.conf.arg(help=about)]
        elif is_list(info.annotation):
            kind = Annotated[tuple[str, ...], tyro.conf.arg(help=about, metavar=metavar(info.annotation) + " …")]
        else:
            kind = Annotated[str, tyro.conf.arg(help=about, metavar=metavar(info.annotation))]
        default = written(value, info.annotation)
        fields.append((flag, kind, dataclasses.field(default=default)))
    fields += [(name, type(group), dataclasses.field(default=group)) for name, group in groups]
    twin = dataclasses.make_dataclass(type(spec).__name__, fields, frozen=True)
    twin.__doc__ = type(spec).__doc__
    return twin()


def _untwin(values: Any, spec: BaseModel) -> dict[str, Any]:
    """What was set, by a file or by a flag; the rest stays open."""
    document, untouched = {}, _twin(spec)
    for name, info in type(spec).model_fields.items():
        flag, before = name.rstrip("_"), as_set(spec, name)
        value, optional = getattr(values, flag), type(None) in get_args(info.annotation)
        if is_group(before):
            document[name] = _untwin(value, before)
        elif value != getattr(untouched, flag):
            document[name] = None if optional and value in ("none", ("none",), ()) else value
        elif name in spec.model_fields_set:
            document[name] = before  # an empty list is not none, though their texts are alike
    return document
