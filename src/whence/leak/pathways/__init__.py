"""Where position may enter a model: one file for each kind of entrance."""

from __future__ import annotations

from whence.leak.pathways.base import Source
from whence.registry import Registry

SOURCES: Registry[Source] = Registry(__name__, Source)
