"""Measure position leakage in masked models and compare mitigations. From Python:

result = whence.audit(my_model, batch)
print(result)                      # the verdict in words; result.model_dump() has every number
"""

from typing import TYPE_CHECKING

from whence.lazy import lazily

if TYPE_CHECKING:
    from whence.leak.api import load
    from whence.leak.audit.own_model import audit_target
    from whence.leak.audit.target import AuditTarget
    from whence.leak.metrics import Audit

__all__ = ["Audit", "AuditTarget", "audit_target", "load"]

_MODULES = {
    "Audit": "whence.leak.metrics",
    "AuditTarget": "whence.leak.audit.target",
    "audit_target": "whence.leak.audit.own_model",
    "load": "whence.leak.api",
}
__getattr__, __dir__ = lazily(__name__, _MODULES)
