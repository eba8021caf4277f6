"""Measure position leakage in masked models and compare mitigations. From Python:

result = whence.audit(my_model, batch)
print(result)                      # the verdict in words; result.model_dump() has every number
"""

from whence.leak.audit.own_model import audit_target
from whence.leak.audit.target import AuditTarget

__all__ = ["AuditTarget", "audit_target"]
