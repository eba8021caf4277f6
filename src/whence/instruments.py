"""The instruments, for the command line, the app and Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from whence.errors import not_allowed

if TYPE_CHECKING:
    from whence.experiments.instrument import Instrument

PLACES = {
    "arena": ("whence.arena.instrument", "ARENA"),
    "leak": ("whence.leak.instrument", "LEAK"),
    "features": ("whence.features.instrument", "FEATURES"),
    "fields": ("whence.fields.instrument", "FIELDS"),
}


def instrument(name: str) -> Instrument[Any, Any]:
    """The instrument of this name. It is imported here, since some imports take seconds."""
    if name not in PLACES:
        raise not_allowed("instrument", name, list(PLACES))
    module, constant = PLACES[name]
    return getattr(importlib.import_module(module), constant)


def instruments() -> dict[str, Instrument[Any, Any]]:
    return {name: instrument(name) for name in PLACES}
