"""A verdict or a state as a badge, on pages and in the app."""

from __future__ import annotations

import html
from collections.abc import Sequence

WITHOUT_EVIDENCE = ("reconstructs nothing", "no different from untrained")
"""Verdicts on a model beside which everything else that is said of it is uncertain"""
UNSURE = ("at chance", "not learned", "undecided", "exploratory", "seeds disagree", "traces")
UNSURE += (*WITHOUT_EVIDENCE, "not run", "interrupted", "stopped")
KINDS = {
    "good": ("solved", "finished", "clean"),
    "bad": ("failed", "damaged", "corrupt", "refused", "leaky", "position only"),
    "unsure": UNSURE,
}


def badge(word: str, kind: str | None = None) -> str:
    """A verdict or a state, in a shape that says whether it is good, bad or not certain."""
    kind = kind or next((kind for kind, words in KINDS.items() if word in words), "")
    return f'<span class="badge {kind}">{html.escape(word)}</span>' if word else ""


def badges(words: Sequence[str]) -> str:
    """The words of one verdict. Those on a model without evidence are all shown as uncertain."""
    kind = "unsure" if set(words) & set(WITHOUT_EVIDENCE) else None
    return " ".join(badge(word, kind) for word in words)
