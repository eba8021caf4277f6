"""Numbers as text."""

from __future__ import annotations


def percent(ratio: str | float) -> str:
    return f"{100 * float(ratio):g} %"


def at_ratio(ratio: str | float) -> str:
    return f"at mask ratio {float(ratio):g}"
