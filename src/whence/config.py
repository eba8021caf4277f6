"""The base class of all configurations: frozen, and strict about the names of fields."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Self, get_args

import pydantic
from pydantic import BaseModel, ConfigDict

from whence.errors import from_validation
from whence.registry import registries_in


class Config(BaseModel):
    """A frozen pydantic model. An unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def read(cls, document: Any) -> Self:
        """Validate a mapping; `UserError` names the field, the value, what was expected and the nearest match."""
        try:
            return cls.model_validate(document)
        except pydantic.ValidationError as error:
            raise from_validation(error, lambda path: fields_at(cls, path)) from None


def fields_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The names of the fields at a path inside a model, which may pass through lists and tagged unions."""
    here = [model]
    for part in path:
        inside = [
            model
            for kind in here
            if part in kind.model_fields
            for model in _models_in(kind.model_fields[part].rebuild_annotation())
        ]
        tagged = [kind for kind in here if "name" in kind.model_fields and kind.model_fields["name"].default == part]
        here = inside or tagged or here
    return sorted({name for kind in here for name in kind.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    if registries := registries_in(annotation):
        return [model for registry in registries for model in registry.choices.values()]
    return [model for part in get_args(annotation) for model in _models_in(part)]
