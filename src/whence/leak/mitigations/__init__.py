"""Cures of position leakage: one file each, freely combined. `CURES.choose("position_penalty:form=r2")`."""

from __future__ import annotations

from typing import Annotated

from whence.leak.mitigations.base import Cure
from whence.registry import Choice, Registry

CURES: Registry[Cure] = Registry(__name__, Cure)
CureChoice = Annotated[Choice[Cure], CURES]
