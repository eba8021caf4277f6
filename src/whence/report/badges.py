"""A verdict or a state as a badge, on pages and in the app."""

from __future__ import annotations

import html

UNSURE = ("at chance", "not learned", "exploratory", "seeds disagree", "traces")
UNSURE += ("dead", "reconstructs nothing", "not run", "interrupted", "stopped")
KINDS = {
    "good": ("solved", "finished", "clean"),
    "bad": ("failed", "damaged", "corrupt", "refused", "leaky"),
    "unsure": UNSURE,
}


def badge(word: str, kind: str | None = None) -> str:
    """A verdict or a state, in a shape that says whether it is good, bad or not certain."""
    kind = kind or next((kind for kind, words in KINDS.items() if word in words), "")
    return f'<span class="badge {kind}">{html.escape(word)}</span>' if word else ""
