"""A spec as text, field by field: what the command line and the app's forms have in common."""

from __future__ import annotations

import shlex
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from whence.config import Config
from whence.registry import registries_in

NONE = "none"


@dataclass(frozen=True)
class Leaf:
    """One field that a user can set."""

    path: tuple[str, ...]
    annotation: Any
    about: str
    value: bool | str | tuple[str, ...]
    """As a user would write it; what nobody has set, as it is by default."""

    @property
    def name(self) -> str:
        return self.path[-1].rstrip("_")

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def optional(self) -> bool:
        return type(None) in get_args(self.annotation)

    @property
    def words(self) -> tuple[str, ...] | None:
        """What may be chosen, where that is a closed list."""
        kind = without_none(self.annotation)
        return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else None

    @property
    def whole_number(self) -> bool:
        return self.annotation is int

    def given(self, value: bool | str | Sequence[str]) -> Any:
        """What the spec is to read, of what a user has written."""
        text = tuple(value) if isinstance(value, list) else value
        return None if self.optional and text in (NONE, (NONE,), (), "") else text


def leaves(spec: BaseModel, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All of them, those of nested specs after their group."""
    for name, info in type(spec).model_fields.items():
        value = as_set(spec, name)
        if is_group(value):
            yield from leaves(value, (*path, name))
        else:
            chosen = registries_in(info.rebuild_annotation())
            annotation = info.annotation if not chosen else info.rebuild_annotation()
            yield Leaf((*path, name), annotation, info.description or "", written(value, info.annotation))


def written(value: Any, annotation: Any) -> bool | str | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if is_list(annotation):
        return tuple(map(text, value or ()))  # none and an empty list look the same here
    return text(value)


def command(
    words: Sequence[str], spec_class: type[Config], document: Mapping[str, Any], others: Sequence[str] = ()
) -> str:
    """The line that a terminal wants for a document that holds what was set. others: options beside it."""
    line = ["whence", *words]
    for leaf in leaves(spec_class()):
        value: Any = document
        for part in leaf.path:
            value = value.get(part, _UNSET) if isinstance(value, Mapping) else _UNSET
        if value is _UNSET:
            continue
        if isinstance(value, bool):
            line += [] if value == leaf.value else [leaf.flag if value else leaf.flag.replace("--", "--no-", 1)]
        elif isinstance(value, list | tuple):
            line += [leaf.flag, *map(text, value)]
        else:
            line += [leaf.flag, text(value)]
    return shlex.join([*line, *others])


_UNSET = object()


def as_set(spec: BaseModel, name: str) -> Any:
    """A field's value if a file has set it, else its default."""
    return getattr(spec, name) if name in spec.model_fields_set else type(spec).model_fields[name].get_default()


def is_group(value: Any) -> bool:
    """A nested spec, unless a user writes it as one word (`rope:base=500`)."""
    return isinstance(value, Config) and type(value).__str__ is BaseModel.__str__


def is_list(annotation: Any) -> bool:
    return tuple in (get_origin(annotation), *map(get_origin, get_args(annotation)))


def text(value: Any) -> str:
    return NONE if value is None else str(value)


def without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def metavar(kind: Any) -> str:
    kind = without_none(kind)
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    return {int: "INT", float: "NUMBER", str: "TEXT"}.get(kind, "NAME[:OPTION=VALUE,…]")


def variants(annotation: Any) -> list[str]:
    """The names that a field of a registry, or a list of such, may begin with."""
    if registries := registries_in(annotation):
        return sorted(name for registry in registries for name in registry.names())
    if isinstance(annotation, type) and issubclass(annotation, Config):  # written as one word, its first field first
        return variants(next(iter(annotation.model_fields.values())).rebuild_annotation())
    return sorted({name for part in get_args(annotation) for name in variants(part)})
