"""Measure position leakage in masked models and compare mitigations. From Python:

result = whence.audit(my_model, batch)
print(result)                      # the verdict in words; result.to_json() has every number
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.leak.audit.target import Subject
    from whence.leak.audit.targets.module import subject_of

__all__ = ["RATIOS", "Subject", "subject_of"]

RATIOS = (0.15, 0.5, 0.9, 1.0)
"""Mask ratios of an audit."""


def shares(ratios: Sequence[float]) -> Sequence[float]:
    """The same, if they are such."""
    if not ratios or not all(0 < ratio <= 1 for ratio in ratios):
        raise ValueError(f"{tuple(ratios)} are not shares. Allowed: above 0, up to 1.")
    return ratios


def __getattr__(name: str) -> Any:
    if name == "Subject":
        from whence.leak.audit.target import Subject

        return Subject
    if name == "subject_of":
        from whence.leak.audit.targets.module import subject_of

        return subject_of
    raise AttributeError(f"whence.leak has no {name!r}; it has {', '.join(__all__)}")
