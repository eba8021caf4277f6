"""Numbers, durations and units as text; rows as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Characters that control a terminal or reorder the text around them, and lone surrogates"""
FORMULA = ("=", "+", "-", "@")
"""Spreadsheets compute a cell that begins with one of these"""


def visible(text: str) -> str:
    """The text with unprintable characters escaped: `\\x1b` for the character that begins a terminal command."""
    return UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def is_share(name: str) -> bool:
    """Whether a headline number is a fraction, shown in percent: those with a unit end with it in brackets."""
    return not name.endswith(")")


def scored(name: str, value: float) -> str:
    """A value as tables show it: fractions in percent."""
    return f"{100 * value:.1f}" if is_share(name) else f"{value:.3g}"


def scores(headline: Mapping[str, float], between: str = "  ") -> str:
    """Every value with its name."""
    return between.join(f"{name} {scored(name, value)}" for name, value in headline.items())


def labelled(name: str) -> str:
    """The name with its unit."""
    return f"{name} (%)" if is_share(name) else name


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def rough_duration(seconds: float) -> str:
    """For an estimate: in seconds below one minute, else in minutes."""
    return duration(seconds) if seconds < 59.5 else duration(60 * round(seconds / 60)).removesuffix(" 00 s")


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def as_size(count: int) -> str:
    """A number of bytes in a unit that keeps it short."""
    return (
        f"{count} bytes"
        if count < 2**10
        else f"{count / 2**10:.0f} KiB"
        if count < 2**20
        else f"{count / 2**20:.1f} MiB"
        if count < 2**30
        else f"{count / 2**30:.1f} GiB"
    )


def number(value: float | None, undefined: str = "undefined") -> str:
    if value is None:
        return undefined
    return f"{value:.3f}" if abs(value) >= 0.0005 or value == 0 else f"{value:.0e}"


def share(value: float) -> str:
    """A share of a variance, in percent."""
    if value >= 0.001:
        return f"{100 * value:.1f} %"
    return f"{100 * value:.2g} %" if value >= 1e-6 else f"{value:.0e}" if value > 0 else "0 %"


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV with a column for every key of any row. Text is escaped, so that no cell is read as a formula."""
    rows = [{_cell(name): _cell(value) for name, value in row.items()} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(column for row in rows for column in row)))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return "'" * value.startswith(FORMULA) + visible(value)
