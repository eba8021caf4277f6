"""Mixers: one file each. What lets the positions of a sequence exchange information."""

from __future__ import annotations

from typing import Annotated

from whence.mixers.base import Mixer
from whence.registry import Choice, Registry

MIXERS: Registry[Mixer] = Registry(__name__, Mixer)
MixerChoice = Annotated[Choice[Mixer], MIXERS]


def __getattr__(name: str) -> type[Mixer]:
    return MIXERS.attribute(name)
