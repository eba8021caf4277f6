"""What an audit measures. `whence.audit` is the function below; `whence leak audit` stores its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whence.leak.metrics import MASK_RATIOS, Audit

if TYPE_CHECKING:
    from torch import Tensor, nn

    from whence.leak.audit.target import AuditTarget


def audit(
    model: nn.Module | AuditTarget,
    batch: Tensor | None = None,
    *,
    ratios: Sequence[float] = MASK_RATIOS,
    **how: Any,
) -> Audit:
    """Measure position leakage of a masked model, as `whence leak audit` does. Nothing is stored.

    Args:
        model: takes masked content and returns one prediction per token.
        batch: examples, (rows, tokens, features) of floats or (rows, tokens) of token ids.
        ratios: mask ratios, above 0 and up to 1.
        how: keywords of `whence.leak.audit_target`; token ids require `mask`, the id of the mask token.

    Raises:
        UserError: where the inputs or the measures are degenerate, so that any verdict would be wrong.

    Example:
        >>> result = whence.audit(model, ids, mask=tokenizer.mask_token_id)
        >>> result.verdict.outcome, result.verdict.pathways
        ('leaky', ['learned absolute positions'])
    """
    from whence.errors import UserError
    from whence.leak.audit.auditing import measure_audit
    from whence.leak.audit.target import AuditTarget
    from whence.leak.audit.targets.module import audit_target

    if isinstance(model, AuditTarget):
        return measure_audit(model, ratios)
    if batch is None:
        raise UserError("batch: a model needs content to be audited on. Allowed: audit(model, batch).")
    return measure_audit(audit_target(model, batch, **how), ratios)
