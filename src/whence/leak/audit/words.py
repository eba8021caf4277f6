"""Numbers as text."""

from __future__ import annotations


def number(value: float | None, undefined: str = "undefined") -> str:
    if value is None:
        return undefined
    return f"{value:.3f}" if abs(value) >= 0.0005 or value == 0 else f"{value:.0e}"


def share(value: float) -> str:
    """Of a variance."""
    if value >= 0.001:
        return f"{100 * value:.1f} %"
    return f"{100 * value:.2g} %" if value >= 1e-6 else f"{value:.0e}" if value > 0 else "0 %"


def percent(ratio: str | float) -> str:
    return f"{100 * float(ratio):g} %"


def at_ratio(ratio: str | float) -> str:
    return f"at mask ratio {float(ratio):g}"
