"""A verdict or a state as a badge, on pages and in the app."""

from __future__ import annotations

import html

KINDS = {
    "good": ("solved", "finished"),
    "bad": ("failed", "damaged", "corrupt", "refused"),
    "unsure": ("at chance", "not learned", "undecided", "exploratory", "interrupted", "stopped"),
}


def badge(word: str) -> str:
    """A verdict or a state, in a shape that says whether it is good, bad or not certain."""
    kind = next((kind for kind, words in KINDS.items() if word in words), "")
    return f'<span class="badge {kind}">{html.escape(word)}</span>' if word else ""
