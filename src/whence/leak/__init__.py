"""Is the model predicting from content or from position, and what stops it? From Python:

    found = whence.audit(my_model, batch)
    print(found)                      # the verdict in words; found.to_json() has every number

`batch`: (rows, tokens, features) of numbers, or (rows, tokens) of ids with mask=THE_ID. Keywords as in `subject_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from whence.leak.adapters.any_module import subject_of
    from whence.leak.auditing import Audit
    from whence.leak.subject import Subject

__all__ = ["RATIOS", "Subject", "audit", "subject_of"]

RATIOS = (0.15, 0.5, 0.9, 1.0)
"""Shares of tokens hidden at which models are looked at."""


def shares(ratios: Sequence[float]) -> Sequence[float]:
    """The same, if they are such."""
    if not ratios or not all(0 < ratio <= 1 for ratio in ratios):
        raise ValueError(f"{tuple(ratios)} are not shares. Allowed: above 0, up to 1.")
    return ratios


def audit(
    model: nn.Module | Subject,
    batch: Tensor | None = None,
    *,
    ratios: Sequence[float] = RATIOS,
    **how: Any,
) -> Audit:
    """Everything `whence leak audit` finds."""
    from whence.errors import UserError
    from whence.leak.adapters.any_module import subject_of
    from whence.leak.auditing import audit as look
    from whence.leak.subject import Subject

    if isinstance(model, Subject):
        return look(model, ratios)
    if batch is None:
        raise UserError("batch: a model needs content to be audited on. Allowed: audit(model, batch).", field="batch")
    return look(subject_of(model, batch, **how), ratios)


def __getattr__(name: str) -> Any:
    if name == "Subject":
        from whence.leak.subject import Subject

        return Subject
    if name == "subject_of":
        from whence.leak.adapters.any_module import subject_of

        return subject_of
    raise AttributeError(f"whence.leak has no {name!r}; it has {', '.join(__all__)}")
