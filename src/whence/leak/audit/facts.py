"""What a reader must know of a model to read its audit: how it is masked, and what that explains by construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from whence.formatting import share
from whence.leak.audit.influence import embedded
from whence.leak.audit.shift import ROWS
from whence.leak.audit.target import AuditTarget
from whence.leak.audit.words import at_ratio
from whence.leak.pathways.additive_encoding import AdditiveEncoding
from whence.leak.pathways.base import ablated
from whence.leak.pathways.causal_order import CAUSAL_ORDER
from whence.models.capture import capture


def facts(
    target: AuditTarget, masked: Tensor, ratio: float, pattern: float | None, sources: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Sentences on the mask token, the mask pattern, causal order, and limits that were applied.

    Args:
        pattern: R² with which the mask pattern alone predicts position, at `ratio`.
        sources: the table of pathways.
    """
    told = [target.mask_description, *_mask_tokens(target, masked), *_additive(target, masked)]
    if pattern is not None:
        told.append(
            f"The mask pattern alone predicts position with R² {pattern:.2f} {at_ratio(ratio)}: a probe may reach as "
            "much without a leak."
        )
    told += [*_causal(sources), *target.limits]
    if len(target.content) > ROWS:
        told.append(f"The shift test uses the first {ROWS} of {len(target.content)} examples.")
    return [sentence for sentence in told if sentence]


def _mask_tokens(target: AuditTarget, masked: Tensor) -> list[str]:
    if target.mask_module is None:
        return []
    few, gone = target.with_rows(8), masked[:8]
    with capture(target.model, [target.mask_module], attention=False) as cache:
        few.predictions(few.content, gone)
    tokens = cache.hidden[target.mask_module]
    if not isinstance(tokens, Tensor) or tokens.shape[:2] != gone.shape:
        return []
    equal = torch.allclose(tokens[gone], tokens[gone][:1], atol=1e-6)
    return [f"Masked tokens are {'equal' if equal else 'not equal'} before encodings are added."]


def _additive(target: AuditTarget, masked: Tensor) -> list[str]:
    few, gone = target.with_rows(8), masked[:8]
    additive = AdditiveEncoding().detect(few, gone)
    if not additive or not target.layers:
        return []
    with_encodings = embedded(few, gone)
    with ablated(additive):
        without = embedded(few, gone)
    if with_encodings is None or without is None or with_encodings.shape[:2] != gone.shape:
        return []
    added = (with_encodings - without).norm(dim=-1)
    at_masked, at_visible = (f"{float(added[where].mean()):.2g}" for where in (gone, ~gone))
    return [f"Additive encodings have a norm of {at_masked} at masked tokens, {at_visible} at visible ones."]


def _causal(sources: Sequence[Mapping[str, Any]]) -> list[str]:
    """What causal order explains by construction, and what is left without it."""
    row = next((row for row in sources if row["name"] == CAUSAL_ORDER), None)
    if row is None:
        return []
    return [
        "Attention is causal: a token's position determines how many tokens it attends to, by construction. Mean shift "
        f"sensitivity {share(row['with_all'])}; with causal order as the only pathway {share(row['alone'])}; without "
        f"causal order {share(row['without'])}."
    ]
