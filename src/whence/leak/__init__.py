"""Measure position leakage in masked models and compare mitigations. From Python:

result = whence.audit(my_model, batch)
print(result)                      # the verdict in words; result.model_dump() has every number
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.leak.audit.target import AuditTarget
    from whence.leak.audit.targets.module import audit_target

__all__ = ["AuditTarget", "audit_target"]


def __getattr__(name: str) -> Any:
    if name == "AuditTarget":
        from whence.leak.audit.target import AuditTarget

        return AuditTarget
    if name == "audit_target":
        from whence.leak.audit.targets.module import audit_target

        return audit_target
    raise AttributeError(f"whence.leak has no {name!r}; it has {', '.join(__all__)}")
