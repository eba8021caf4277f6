"""Mixers: one file each. What lets the positions of a sequence exchange information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.mixers.base import Mixer
from whence.registry import Choice, Registry

MIXERS: Registry[Mixer] = Registry(__name__, Mixer)

if TYPE_CHECKING:
    MixerChoice = Choice


def __getattr__(name: str) -> Any:
    if name == "MixerChoice":
        return MIXERS.union()
    found = None if name.startswith("_") else MIXERS.by_class_name(name)
    if found is None:
        raise AttributeError(f"whence.mixers has no {name!r}; it has {', '.join(m.__name__ for m in MIXERS)}")
    return found
