"""The same content in the same arrangement, elsewhere: what changes is absolute position, and nothing else.

Statistics over places cannot tell a model that knows where it is from one that only sees how hidden and visible tokens
lie around it: with half of them hidden, counting the visible ones to the left gives the place away. Moving everything
can. A block of tokens, some visible and some hidden, is set into a sequence that is hidden otherwise, first at the
beginning, then further on. A model that knows only what lies around a token says the same both times.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whence.leak.masks import draw
from whence.leak.measures import deviation
from whence.leak.subject import Subject

ROWS = 24


def shift_effect(
    subject: Subject, ratio: float, targets: float, seed: int = 0, own: float | None = None
) -> dict[str, float]:
    """Variance of predictions that comes from moving, over the targets' variance and over the predictions' own.

    `own`: the predictions' deviation, where it was measured under other conditions.

    In a model with noise in it, what a second look without moving changes is taken off.
    """
    subject = subject.with_rows(ROWS)
    inner = range(*subject.inner().indices(subject.tokens))
    steps = len(inner) // subject.stride
    far = max(1, steps // 3)
    block = (steps - far) * subject.stride
    generator = torch.Generator().manual_seed(seed)
    hidden = draw(generator, len(subject.content), block, ratio, subject.pattern)
    content = subject.content[:, inner.start : inner.start + block]

    def placed(by: int) -> Tensor:
        start = inner.start + by * subject.stride
        moved, gone = subject.content.clone(), torch.zeros(len(content), subject.tokens, dtype=torch.bool)
        gone[:, inner.start : inner.stop] = True
        moved[:, start : start + block], gone[:, start : start + block] = content, hidden
        return subject.said(moved, gone)[:, start : start + block][hidden].double()

    first, other = placed(0), placed(far)
    size = float((other - first).pow(2).mean() / 2)
    if subject.noisy():
        size = max(0.0, size - float((placed(0) - first).pow(2).mean() / 2))
    own = deviation(torch.cat([first, other])) if own is None else own
    return {"of_target": size / targets**2, "of_prediction": min(1.0, size / own**2) if own else 0.0, "own": own}
