"""What a reader must know of a model to read its audit: how it is masked, and what that explains by construction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whence.formatting import share
from whence.leak.audit.influence import embedded
from whence.leak.audit.shift import ROWS
from whence.leak.audit.target import AuditTarget
from whence.leak.metrics import PathwayEffect, at_ratio
from whence.leak.pathways.additive_encoding import AdditiveEncoding
from whence.leak.pathways.base import ablated
from whence.leak.pathways.causal_order import CAUSAL_ORDER
from whence.models.capture import capture


def facts(
    target: AuditTarget, masked: Tensor, ratio: float, pattern: float | None, pathways: Sequence[PathwayEffect]
) -> list[str]:
    """Sentences on the mask token, the mask pattern, causal order, and limits that were applied.

    Args:
        pattern: R² with which the mask pattern alone predicts position, at `ratio`.
        pathways: what ablating each of them does.
    """
    sentences = [target.mask_description, *_mask_tokens(target, masked), *_additive(target, masked)]
    if pattern is not None:
        sentences.append(
            f"The mask pattern alone predicts position with R² {pattern:.2f} {at_ratio(ratio)}: a probe may reach as "
            "much without a leak."
        )
    sentences += [*_causal(pathways), *target.limits]
    if len(target.content) > ROWS:
        sentences.append(f"The shift test uses the first {ROWS} of {len(target.content)} examples.")
    return [sentence for sentence in sentences if sentence]


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


def _causal(pathways: Sequence[PathwayEffect]) -> list[str]:
    """What causal order explains by construction, and what is left without it."""
    effect = next((effect for effect in pathways if effect.name == CAUSAL_ORDER), None)
    if effect is None or effect.without is None:
        return []
    return [
        "Attention is causal: a token's position determines how many tokens it attends to, by construction. Mean shift "
        f"sensitivity {share(effect.with_all)}; with causal order as the only pathway {share(effect.alone)}; without "
        f"causal order {share(effect.without)}."
    ]
