"""A folder is a registry: every file in it holds one variant, and the file's name is its key.

A variant's constructor is its specification. Positional parameters are *structure*, supplied by whoever
builds it (a model knows its width); keyword-only parameters are *options*, chosen by the user. From the
options the registry makes a frozen pydantic model, so that the same signature serves the config file, the
command line, the app's form and the run's content hash.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, Union, get_type_hints

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from whence.errors import UserError

T = TypeVar("T", bound="Variant")


class Variant:
    """Base of everything that is added to whence by adding a file. Constructor arguments are validated."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            hints = get_type_hints(cls.__init__, include_extras=True)
            cls.__init__.__annotations__ = hints  # strings no more: pydantic could not resolve them from here
            setattr(cls, "__init__", pydantic.validate_call(cls.__init__))  # noqa: B010  (a method is not assignable)

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return inspect.cleandoc(cls.__doc__ or "").split("\n")[0]


class Choice(BaseModel):
    """A variant and its options, not built yet. Reads and prints as `name:option=value,option=value`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    variant: ClassVar[type[Variant]]
    name: str

    def options(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in type(self).model_fields if field != "name"}

    def build(self, **structure: Any) -> Any:
        """Construct the variant from the parts of `structure` that its signature asks for."""
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
    """Text that reads back as the same value: every digit of a float, because two specs must not print alike."""
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


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
            raise ValueError(f"{value!r}: write options as name:option=value,option=value")
        if option.strip() in fields:
            raise ValueError(f"{value!r}: {option.strip()!r} is given twice")
        fields[option.strip()] = text.strip()
    return fields


class Registry(Generic[T]):
    """The variants found in one package folder."""

    def __init__(self, package: ModuleType | str, base: type[T]) -> None:
        self._package = importlib.import_module(package) if isinstance(package, str) else package
        self._base = base

    @functools.cached_property
    def _variants(self) -> dict[str, type[T]]:
        return {name: self._load(name) for name in self.names()}

    def names(self) -> list[str]:
        """The keys, from file names alone: nothing is imported."""
        files = pkgutil.iter_modules(self._package.__path__)
        return sorted(f.name for f in files if not f.ispkg and f.name != "base" and not f.name.startswith("_"))

    def _load(self, name: str) -> type[T]:
        module = importlib.import_module(f"{self._package.__name__}.{name}")
        found = [
            item
            for item in vars(module).values()
            if inspect.isclass(item) and issubclass(item, self._base) and item.__module__ == module.__name__
        ]
        if len(found) != 1:
            raise UserError(f"{module.__file__}: expected exactly one {self._base.__name__}, found {len(found)}")
        found[0].name = name
        return found[0]

    def __getitem__(self, name: str) -> type[T]:
        return self._variants[name]

    def __iter__(self) -> Iterator[type[T]]:
        return iter(self._variants.values())

    def __len__(self) -> int:
        return len(self._variants)

    def by_class_name(self, class_name: str) -> type[T] | None:
        return next((variant for variant in self if variant.__name__ == class_name), None)

    @functools.cached_property
    def choices(self) -> dict[str, type[Choice]]:
        """For every variant, the frozen pydantic model of its options."""
        return {name: _choice_model(name, variant) for name, variant in self._variants.items()}

    def preferred(self, *wanted: str) -> list[Choice]:
        """Those of the wanted variants that are there, or the first that is: a default must survive a deleted file."""
        return [self.choose(name) for name in wanted if name in self._variants] or [self.choose(self.names()[0])]

    def choose(self, value: Any) -> Choice:
        """A validated choice from text, a mapping or a choice."""
        return self._adapter.validate_python(value)

    @functools.cached_property
    def _adapter(self) -> pydantic.TypeAdapter[Choice]:
        return pydantic.TypeAdapter(self.union())

    def union(self) -> Any:
        """The type of a field that holds one choice of this registry."""
        members = list(self.choices.values())
        tagged = Annotated[Union[tuple(members)], Field(discriminator="name")] if len(members) > 1 else members[0]
        return Annotated[tagged, BeforeValidator(parse_choice)]


def _choice_model(name: str, variant: type[Variant]) -> type[Choice]:
    parameters = inspect.signature(variant).parameters.values()
    hints = get_type_hints(variant.__init__, include_extras=True)
    fields: dict[str, Any] = {p.name: (hints[p.name], p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
    model = create_model(variant.__name__, __base__=Choice, name=(Literal[name], name), **fields)  # type: ignore[valid-type]
    model.variant = variant
    model.__doc__ = variant.summary()
    return model
