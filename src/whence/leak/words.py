"""Numbers as people read them."""

from __future__ import annotations


def number(value: float | None, undefined: str = "undefined") -> str:
    if value is None:
        return undefined
    return f"{value:.3f}" if abs(value) >= 0.0005 or value == 0 else f"{value:.0e}"


def share(value: float) -> str:
    """Of a variance."""
    if value >= 0.001:
        return f"{100 * value:.1f} %"
    return f"{value:.0e}" if value > 0 else "nothing"


def percent(ratio: str | float) -> str:
    """Of tokens hidden."""
    return f"{100 * float(ratio):g} %"
