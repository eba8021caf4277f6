"""The fields of a config as options, from which command-line flags and the forms of the app are made."""

from __future__ import annotations

import re
import shlex
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from whence.config import Config
from whence.registry import registries_in
from whence.store.files import flat
from whence.store.runs import Store

NONE = "none"
UNSET = re.compile(r"(?:; |\. |^)(?:none(?: named)?|default): (.+?)(?=[.;] |\.?$)", re.IGNORECASE)
"""The clause of a description that states what an option means while it has no value"""


def metavar(text: str) -> dict[str, JsonValue]:
    """The placeholder of a value in the help: `Field(json_schema_extra=metavar("FILE"))`."""
    return {"metavar": text}


def positional(text: str) -> dict[str, JsonValue]:
    """Marks a field as a positional argument of the command line. One per config."""
    return {"metavar": text, "positional": True}


@dataclass(frozen=True)
class Option:
    """One field that a user can set."""

    path: tuple[str, ...]
    annotation: Any
    description: str
    value: bool | str | tuple[str, ...]
    """As written on the command line: the value in the config, otherwise the default"""
    metavar: str
    positional: bool = False
    required: bool = False
    variants: tuple[str, ...] = ()
    """The allowed names of a field that takes entries of a registry"""

    @property
    def name(self) -> str:
        return self.path[-1].rstrip("_")

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def purpose(self) -> str:
        """The description, without the clause on its missing value."""
        return UNSET.sub("", self.description, count=1).lstrip("; ")

    @property
    def unset(self) -> str | None:
        """What the option means while it has no value."""
        clause = UNSET.search(self.description)
        return clause[1] if clause else None

    @property
    def optional(self) -> bool:
        return type(None) in get_args(self.annotation)

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The values of a closed list."""
        kind = _without_none(self.annotation)
        return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else None

    @property
    def whole_number(self) -> bool:
        return self.annotation is int

    def parse(self, value: bool | str | Sequence[str]) -> Any:
        """The value to validate, from the text of a user."""
        text = tuple(value) if isinstance(value, list) else value
        return None if self.optional and text in (NONE, (NONE,), (), "") else text


def options_of(config: BaseModel | type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[Option]:
    """All options, with those of nested configs in place of their field. For a class, values are the defaults."""
    for name, info in _fields(config).items():
        value = _set_or_default(config, name)
        if is_group(value):
            yield from options_of(value, (*path, name))
        else:
            extra = {} if callable(info.json_schema_extra) else info.json_schema_extra or {}
            yield Option(
                (*path, name),
                info.annotation,
                info.description or "",
                _written(value, info.annotation),
                str(extra.get("metavar") or _metavar(info.annotation)),
                bool(extra.get("positional")),
                info.is_required(),
                _variants(info.rebuild_annotation()),
            )


def set_fields(config: BaseModel | type[BaseModel]) -> dict[str, Any]:
    """The fields that were set, by a file or by the default of a group.

    Values that a task or a mixer fills in are left out, because flags may choose another task or mixer.
    """
    document: dict[str, Any] = {}
    for name in _fields(config):
        value = _set_or_default(config, name)
        if is_group(value):
            document[name] = set_fields(value)
        elif isinstance(config, BaseModel) and name in config.model_fields_set:
            document[name] = value
    return document


def command(
    words: Sequence[str], config_class: type[Config], document: Mapping[str, Any], others: Sequence[str] = ()
) -> str:
    """The command line for a document of set fields. `others` are further options."""
    plain: list[str] = []
    flags: list[str] = []
    given = flat(document)
    for option in options_of(config_class):
        if (name := ".".join(option.path)) not in given:
            continue
        value = given[name]
        if isinstance(value, bool):
            flags += [] if value == option.value else [option.flag if value else option.flag.replace("--", "--no-", 1)]
            continue
        texts = [_text(item) for item in (value if is_list(value) else [value])]
        if option.positional:
            plain += texts
        else:
            flags += [option.flag, *texts]
    return shlex.join(["whence", *words, *plain, *flags, *others])


def store_flag(store: Store) -> list[str]:
    """The --store option for this store; empty for the default store."""
    root = store.root.absolute()
    return [] if Store().root.absolute() == root else ["--store", str(root)]


def _fields(config: BaseModel | type[BaseModel]) -> dict[str, FieldInfo]:
    return (type(config) if isinstance(config, BaseModel) else config).model_fields


def _set_or_default(config: BaseModel | type[BaseModel], name: str) -> Any:
    if isinstance(config, BaseModel) and name in config.model_fields_set:
        return getattr(config, name)
    return _fields(config)[name].get_default()


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def is_group(value: Any) -> bool:
    """Whether a value is a nested config that is not written as one word (`rope:base=500`)."""
    return isinstance(value, Config) and type(value).__str__ is BaseModel.__str__


def _written(value: Any, annotation: Any) -> bool | str | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    required = value is PydanticUndefined
    if tuple in (get_origin(annotation), *map(get_origin, get_args(annotation))):
        return tuple(map(_text, () if required else value or ()))  # none and an empty list are written alike
    return "" if required else _text(value)


def _text(value: Any) -> str:
    return NONE if value is None else str(value)


def _metavar(annotation: Any) -> str:
    kind = _without_none(annotation)
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    return {int: "INT", float: "NUMBER", str: "TEXT"}.get(kind, "NAME[:OPTION=VALUE,…]")


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _variants(annotation: Any) -> tuple[str, ...]:
    if registries := registries_in(annotation):
        return tuple(sorted(name for registry in registries for name in registry.names()))
    if isinstance(annotation, type) and issubclass(annotation, Config):  # written as one word, its first field first
        return _variants(next(iter(annotation.model_fields.values())).rebuild_annotation())
    return tuple(sorted({name for part in get_args(annotation) for name in _variants(part)}))
