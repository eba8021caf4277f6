"""Measure position leakage in masked models and compare mitigations. From Python:

result = whence.audit(my_model, batch)
print(result)                      # the verdict in words; result.to_json() has every number
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.leak.audit.target import AuditTarget
    from whence.leak.audit.targets.module import audit_target

__all__ = ["RATIOS", "AuditTarget", "audit_target"]

RATIOS = (0.15, 0.5, 0.9, 1.0)
"""Mask ratios of an audit."""


def shares(ratios: Sequence[float]) -> Sequence[float]:
    """The same, if they are such."""
    if not ratios or not all(0 < ratio <= 1 for ratio in ratios):
        raise ValueError(f"{tuple(ratios)} are not shares. Allowed: above 0, up to 1.")
    return ratios


def __getattr__(name: str) -> Any:
    if name == "AuditTarget":
        from whence.leak.audit.target import AuditTarget

        return AuditTarget
    if name == "audit_target":
        from whence.leak.audit.targets.module import audit_target

        return audit_target
    raise AttributeError(f"whence.leak has no {name!r}; it has {', '.join(__all__)}")
