"""Measure position leakage in masked models and compare mitigations. From Python:

result = whence.audit(my_model, batch)
print(result)                      # the verdict in words; result.to_json() has every number
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
"""Mask ratios of an audit."""


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
    """Measure position leakage of a masked model, as `whence leak audit` does.

    Args:
        model: takes masked content and returns one prediction per token.
        batch: examples, (rows, tokens, features) of floats or (rows, tokens) of token ids.
        ratios: mask ratios, above 0 and up to 1.
        how: keywords of `whence.leak.subject_of`; token ids require `mask`, the id of the mask token.

    Raises:
        UserError: where the inputs or the measures are degenerate, so that any verdict would be wrong.

    Example:
        >>> result = whence.audit(model, ids, mask=tokenizer.mask_token_id)
        >>> result.verdict.outcome, result.verdict.entrances
        ('leaky', ['learned absolute positions'])
    """
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
