"""Mitigations of position leakage: one file each, freely combined. `MITIGATIONS.choose("position_penalty:form=r2")`."""

from __future__ import annotations

from typing import Annotated

from whence.leak.mitigations.base import Mitigation
from whence.registry import Choice, Registry

MITIGATIONS: Registry[Mitigation] = Registry(__name__, Mitigation)
MitigationChoice = Annotated[Choice[Mitigation], MITIGATIONS]
