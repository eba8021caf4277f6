"""Registries of variants. A registry is a folder or a module, in which variants are found without being listed.

A folder holds one variant per file, and the file's name is its key. A module holds several; a variant's key is the
`name` that its class states, or else the class's name in snake_case (`PositionMean` → `position_mean`).

A variant's constructor is its specification. Positional parameters are *structure*, supplied by whoever
builds it (a model knows its width); keyword-only parameters are *options*, chosen by the user. From the
options the registry makes a frozen pydantic model, so that the same signature serves the config file, the
command line, the app's form and the run's content hash.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, Union, get_args, get_type_hints

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from whence.errors import UserError

WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
T = TypeVar("T", bound="Variant")
T_co = TypeVar("T_co", bound="Variant", covariant=True)


class Variant:
    """The base of everything that a file can add to whence. Constructor arguments are validated."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            hints = get_type_hints(cls.__init__, include_extras=True)
            cls.__init__.__annotations__ = hints  # resolved here: pydantic cannot resolve the strings
            setattr(cls, "__init__", pydantic.validate_call(cls.__init__))  # noqa: B010  (a method is not assignable)

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return cls.about().split("\n")[0]

    @classmethod
    def about(cls) -> str:
        """The docstring as it stands in the file, without what `documented` adds."""
        return re.split(r"\n+(?:Args|Example):\n", inspect.cleandoc(cls.__doc__ or ""))[0]

    @classmethod
    def usage(cls) -> list[str]:
        """Lines of a doctest that calls a variant with its default options; none where users do not construct any."""
        return []


class Choice(BaseModel, Generic[T_co]):
    """A variant with its options, before it is built. Its text form is `name:option=value,option=value`.

    A field of a config that holds one is declared `Annotated[Choice[Task], TASKS]`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    _variant: ClassVar[type[Any]]
    name: str

    @property
    def variant(self) -> type[T_co]:
        return self._variant

    def options(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in type(self).model_fields if field != "name"}

    def build(self, **structure: Any) -> T_co:
        """Construct the variant with the parameters of `structure` that its signature has."""
        wanted = structural_parameters(self.variant)
        return self.variant(**{key: structure[key] for key in wanted if key in structure}, **self.options())

    def __str__(self) -> str:
        changed = [
            f"{field}={_print_value(value)}"
            for field, value in self.options().items()
            if value != type(self).model_fields[field].default
        ]
        return self.name + (":" + ",".join(changed) if changed else "")


def _print_value(value: Any) -> str:
    """Text that parses to the same value, with every digit of a float, so that distinct values print differently."""
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


STRUCTURE = {
    "d_model": ("width of the residual stream", 16),
    "heads": ("number of attention heads", 2),
    "head_dim": ("channels per attention head", 8),
    "causal": ("whether attention is causal", True),
    "train_length": ("length of training sequences", 16),
    "max_length": ("length of the longest sequence", 16),
    "dropout": ("dropout probability", 0.0),
    "out_scale": ("factor on the initial weights of the output projection", 1.0),
    "draw": ("seed of random places", 0),
}
"""By name of a structural parameter, what it is, and its value in examples."""


def documented(variant: type[Variant], usage: list[str]) -> str:
    """A docstring with the arguments, from the signature, and an example: what `help` shows of a variant."""
    text = variant.about()
    if arguments := _documented_arguments(variant):
        text += "\n\nArgs:\n" + "\n".join(arguments)
        text += "\n\nRaises:\n    ValueError: if an argument is out of its range, or does not fit the others."
    return text + "\n\nExample:\n" + "\n".join(f"    {line}" for line in usage)


def _documented_arguments(variant: type[Variant]) -> list[str]:
    lines: list[str] = []
    for parameter in inspect.signature(variant).parameters.values():
        fields = [item for item in _metadata(parameter.annotation) if isinstance(item, FieldInfo)]
        described = [field.description for field in fields if field.description]
        text = described[0] if described else STRUCTURE.get(parameter.name, (parameter.name,))[0]
        default = "" if parameter.default is parameter.empty else f" (default {parameter.default!r})"
        lines.append(f"    {parameter.name}: {text}{default}.")
    return lines


def _metadata(annotation: Any) -> tuple[Any, ...]:
    """Of an annotation, also of one in a union with None."""
    return getattr(annotation, "__metadata__", ()) or tuple(m for part in get_args(annotation) for m in _metadata(part))


def construction(variant: type[Variant], package: str) -> str:
    """`whence.encodings.ALiBi(heads=2)`: the call of an example, with the structure that is required."""
    required = [
        parameter.name
        for parameter in inspect.signature(variant).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty
    ]
    values = [f"{name}={STRUCTURE.get(name, (name, ...))[1]}" for name in required]
    return f"{package}.{variant.__name__}({', '.join(values)})"


def as_keywords(options: str) -> str:
    """Options as a user writes them, `k=2,ask=match`, as arguments of Python: `k=2, ask='match'`."""
    pairs = [pair.partition("=") for pair in filter(None, options.split(","))]
    return ", ".join(f"{name}={_literal(text)!r}" for name, _, text in pairs)


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def structural_parameters(variant: type[Variant]) -> list[str]:
    parameters = inspect.signature(variant).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]


def parse_choice(value: Any) -> Any:
    """`"rope:scaling=yarn,factor=4"` → `{"name": "rope", "scaling": "yarn", "factor": "4"}`; the rest unchanged."""
    if not isinstance(value, str):
        return value
    name, _, rest = value.partition(":")
    fields: dict[str, str] = {"name": name.strip()}
    for part in filter(None, rest.split(",")):
        option, equals, text = part.partition("=")
        if not equals:
            raise ValueError(f"expected name:option=value,option=value, got {value!r}")
        if option.strip() in fields:
            raise ValueError(f"{value!r}: {option.strip()!r} is given twice")
        fields[option.strip()] = text.strip()
    return fields


class Registry(Generic[T]):
    """The variants in a package or a module. As an annotation of a field: a choice of one of them.

    Args:
        place: name of the package or module.
        base: class that all variants derive from.

    Example:
        >>> encodings = whence.encodings.ENCODINGS
        >>> "rope" in encodings.names()
        True
        >>> choice = encodings.choose("rope:scaling=yarn,factor=4")
        >>> choice.build(head_dim=64).factor
        4.0
    """

    def __init__(self, place: str, base: type[T]) -> None:
        self._place = importlib.import_module(place)
        self._base = base
        self._is_folder = hasattr(self._place, "__path__")

    @functools.cached_property
    def _variants(self) -> dict[str, type[T]]:
        """Found on first use, because a module may define its registry above its variants."""
        if self._is_folder:
            variants: dict[str, type[T]] = {}
            for name in self.names():
                module = importlib.import_module(f"{self._place.__name__}.{name}")
                there = self._in(module)
                if len(there) != 1:
                    raise UserError(
                        f"{module.__file__}: expected exactly one {self._base.__name__}, found {len(there)}"
                    )
                variants[name] = there[0]
        else:
            classes = self._in(self._place)
            keyed = [(v.__dict__.get("name") or WORD_START.sub("_", v.__name__).lower(), v) for v in classes]
            variants = dict(sorted(keyed, key=lambda item: item[0]))
            if len(variants) < len(classes):
                raise UserError(f"{self._place.__file__}: two variants have the same name")
        for name, variant in variants.items():
            variant.name = name
            if usage := variant.usage():
                variant.__doc__ = documented(variant, usage)
        return variants

    def names(self) -> list[str]:
        """The names of the variants. Those of a folder are the names of its files, so that nothing is imported."""
        if not self._is_folder:
            return list(self._variants)
        files = pkgutil.iter_modules(self._place.__path__)
        return sorted(f.name for f in files if not f.ispkg and f.name != "base" and not f.name.startswith("_"))

    def _in(self, module: ModuleType) -> list[type[T]]:
        """The variants that a module defines, without private and abstract classes."""
        return [
            item
            for item in vars(module).values()
            if inspect.isclass(item)
            and issubclass(item, self._base)
            and item is not self._base
            and item.__module__ == module.__name__
            and not item.__name__.startswith("_")
            and not inspect.isabstract(item)
        ]

    def __getitem__(self, name: str) -> type[T]:
        return self._variants[name]

    def __iter__(self) -> Iterator[type[T]]:
        return iter(self._variants.values())

    def __len__(self) -> int:
        return len(self._variants)

    def public_names(self) -> list[str]:
        """The classes, for the `__dir__` of a package."""
        return [variant.__name__ for variant in self]

    def attribute(self, name: str) -> type[T]:
        """The variant whose class has this name: what a package's `__getattr__` returns (`encodings.RoPE`)."""
        by_class = {} if name.startswith("_") else {variant.__name__: variant for variant in self}
        if name not in by_class:
            raise AttributeError(f"{self._place.__name__} has no {name!r}; it has {', '.join(by_class)}")
        return by_class[name]

    @functools.cached_property
    def choices(self) -> dict[str, type[Choice[T]]]:
        """By variant, the frozen pydantic model of its options."""
        return {name: _choice_model(name, variant) for name, variant in self._variants.items()}

    def choose(self, value: Any) -> Choice[T]:
        """Validate text, a mapping or a choice; return a choice."""
        return self._adapter.validate_python(value)

    @functools.cached_property
    def _adapter(self) -> pydantic.TypeAdapter[Choice[T]]:
        return pydantic.TypeAdapter(self._union)

    @property
    def _union(self) -> Any:
        members = list(self.choices.values())
        tagged = Annotated[Union[tuple(members)], Field(discriminator="name")] if len(members) > 1 else members[0]
        return Annotated[tagged, BeforeValidator(parse_choice)]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self._union)


def registries_in(annotation: Any) -> list[Registry[Any]]:
    """The registries in the annotation of a field: `tuple[Annotated[Choice[Task], TASKS], ...]` → `[TASKS]`."""
    own = [item for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Registry)]
    return own or [registry for part in get_args(annotation) for registry in registries_in(part)]


def _choice_model(name: str, variant: type[T]) -> type[Choice[T]]:
    parameters = inspect.signature(variant).parameters.values()
    hints = get_type_hints(variant.__init__, include_extras=True)
    fields: dict[str, Any] = {"name": (Literal[name], name)}
    fields |= {p.name: (hints[p.name], p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
    model = create_model(variant.__name__, __base__=Choice[variant], **fields)
    model._variant = variant
    model.__doc__ = variant.summary()
    return model
