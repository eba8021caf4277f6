"""Errors of the user: what was expected, what was given, and the nearest match."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from whence.formatting import counted

if TYPE_CHECKING:
    from pydantic import ValidationError


SHORTEST_PART = 3
"""Characters of a value that suffice to suggest a name which contains it"""


class UserError(Exception):
    """Invalid input. The command line prints the message without a traceback and exits with code 2.

    field: the invalid field; by default the beginning of the message, up to the colon.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        begins, colon, _ = message.partition(":")
        self.field = field or (begins if colon else None)


def hint(value: object, allowed: Iterable[str]) -> str:
    """` Did you mean …?` with the allowed name that is most similar to `value`, or contains it; empty if none is."""
    text, names = str(value).lower(), {name.lower(): name for name in allowed}
    matches = difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    if len(text) >= SHORTEST_PART:
        matches += [name for name in names if text in name]
    return f" Did you mean {names[matches[0]]!r}?" if matches else ""


def not_allowed(field: str, value: object, allowed: Sequence[str]) -> UserError:
    """The error for a value that is not in a closed list."""
    return UserError(f"{field}: {value!r} is not known. Allowed: {', '.join(allowed)}.{hint(value, allowed)}")


def from_validation(
    error: ValidationError, known_fields: Callable[[list[str]], list[str]], whole: str = "value"
) -> UserError:
    """One message from pydantic's list. `known_fields(path)` returns the fields at the place of a misspelt one.

    `whole`: the name of the value itself, where it has no field.
    """
    items = error.errors()
    # a list whose only item is invalid is also reported as too short, which adds nothing
    places = [item["loc"] for item in items if item["type"] != "too_short"]
    reported = [i for i in items if i["type"] != "too_short" or not any(p[: len(i["loc"])] == i["loc"] for p in places)]
    problems = [_describe(item, known_fields, whole) for item in reported]
    return UserError("\n".join(text for _, text in problems), field=problems[0][0])


def _describe(item: Any, known_fields: Callable[[list[str]], list[str]], whole: str) -> tuple[str, str]:
    path = [str(part) for part in item["loc"]]
    field, kind, context = ".".join(path) or whole, item["type"], item.get("ctx", {})
    if kind == "too_short":
        return field, f"{field}: expected at least {counted(context['min_length'], 'value')}, got {len(item['input'])}."
    if kind == "missing":
        return field, f"{field}: must be given; it has no default."
    if kind == "extra_forbidden":
        allowed = known_fields(path[:-1])
        text = f"{field}: no such field (value {item['input']!r}). Allowed: {', '.join(allowed)}."
        return field, text + hint(path[-1], allowed)
    if kind == "union_tag_invalid":
        tag = str(context["tag"])
        return field, str(not_allowed(field, tag, [t.strip("'") for t in context["expected_tags"].split(", ")]))
    if kind == "literal_error":
        allowed = [part.strip("' ") for part in context["expected"].replace(" or ", ", ").split(", ")]
        return field, str(not_allowed(field, item["input"], allowed))
    if kind in ("value_error", "assertion_error"):
        return field, f"{field}: {context['error']}" if field else str(context["error"])
    reason = item["msg"].removeprefix("Input should be ").split(", unable")[0]
    expected = f"a value {reason}" if reason.startswith(("greater", "less")) else reason
    return field, f"{field}: expected {expected}, got {item['input']!r}."
