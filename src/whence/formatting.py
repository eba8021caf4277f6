"""The few numbers that a list of runs shows: shares, unless their names end with a unit in brackets."""

from __future__ import annotations


def is_share(name: str) -> bool:
    return not name.endswith(")")


def scored(name: str, value: float) -> str:
    """As a table shows it; shares in percent."""
    return f"{100 * value:.1f}" if is_share(name) else f"{value:.3g}"


def labelled(name: str) -> str:
    """With its unit."""
    return f"{name} (%)" if is_share(name) else name


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
