"""Cures of position leakage: one file each, freely combined. `CURES.choose("position_penalty:form=r2")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.leak.mitigations.base import Cure
from whence.registry import Choice, Registry

CURES: Registry[Cure] = Registry(__name__, Cure)

if TYPE_CHECKING:
    CureChoice = Choice


def __getattr__(name: str) -> Any:
    if name == "CureChoice":
        return CURES.union()
    raise AttributeError(f"whence.leak.mitigations has no {name!r}")
