"""What a reader must know of a model to read its audit: how it is masked, and what that explains by construction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whence.formatting import share
from whence.leak.audit.influence import added_vectors
from whence.leak.audit.shift import ROWS
from whence.leak.audit.target import AuditTarget
from whence.leak.metrics import PathwayEffect, at_ratio
from whence.leak.pathways import CAUSAL_ORDER, mask_tokens


def facts(
    target: AuditTarget, masked: Tensor, ratio: float, pattern: float | None, pathways: Sequence[PathwayEffect]
) -> list[str]:
    """Sentences on the mask token, the mask pattern, causal order, and limits that were applied.

    Args:
        pattern: R² with which the mask pattern alone predicts position, at `ratio`.
        pathways: what ablating each of them does.
    """
    few, gone = target.with_rows(8), masked[:8]
    sentences = [target.mask_description]
    tokens = mask_tokens(few, gone)
    if tokens is not None:
        equal = "equal" if torch.allclose(tokens, tokens[:1], atol=1e-6) else "not equal"
        sentences.append(f"Masked tokens are {equal} before encodings are added.")
    added = added_vectors(few, gone)
    if added is not None:
        at_masked, at_visible = (f"{float(added.norm(dim=-1)[where].mean()):.2g}" for where in (gone, ~gone))
        sentences.append(
            f"Additive encodings have a norm of {at_masked} at masked tokens, {at_visible} at visible ones."
        )
    if pattern is not None:
        sentences.append(
            f"The mask pattern alone predicts position with R² {pattern:.2f} {at_ratio(ratio)}: a probe may reach as "
            "much without a leak."
        )
    sentences += [*_causal(pathways), *target.limits]
    if len(target.content) > ROWS:
        sentences.append(f"The shift test uses the first {ROWS} of {len(target.content)} examples.")
    return [sentence for sentence in sentences if sentence]


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
