"""The one parser of what somebody else wrote: configurations in YAML or JSON, and stored documents in JSON.

What is refused is refused before it costs time or memory: nesting, repetition by aliases, long numbers. What is
returned holds mappings with distinct names, lists, text, finite numbers, booleans and None, and nothing else.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

DEEPEST = 64
"""Nested groups of a document"""
LARGEST_CONFIG = 2**20
"""Bytes"""
MOST_VALUES = 30_000
"""In a configuration, every repetition by an alias counted; long text counts as several"""
LONGEST_NUMBER = 40
"""Characters of a number as it is written; Python writes none with more than 24"""
LARGEST_WHOLE = 2**64
# possessive, and an open string ends with the document: the time is linear whatever is written
STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
HALF_CHARACTERS = re.compile(rb"\\u[dD][89a-fA-F]")
NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class ParseError(ValueError):
    """Not what may be written; the message continues a sentence about the document."""


def _refuse_constant(name: str) -> float:
    raise ParseError(f"{name} is not a number. Allowed: finite ones")


def parse_json(
    raw: bytes,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
    constant: Callable[[str], float] = _refuse_constant,
) -> Any:
    """In UTF-8. Check `check_depth` first. Stored documents carry a checksum: `pairs` is for those that people write.

    constant: what reads `NaN` and `Infinity`.
    """
    # decoded here: `json` would also take other encodings, and halves of characters
    document = json.loads(
        raw.decode(), parse_constant=constant, parse_float=_float, parse_int=_int, object_pairs_hook=pairs
    )
    if HALF_CHARACTERS.search(raw):  # pairs of them are fine, and usual
        json.dumps(document, ensure_ascii=False).encode()
    return document


def check_depth(raw: bytes) -> None:
    """Before anything is parsed: whatever walks through a document later may do so by recursion."""
    brackets = STRINGS.sub(b"", raw).translate(None, NO_BRACKETS)
    for _ in range(DEEPEST):
        if not brackets:
            return
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    if brackets:
        raise ParseError(f"brackets do not match, or are nested more than {DEEPEST} deep")


def parse_config(raw: bytes, *, json_only: bool) -> dict[str, Any]:
    """Fields and values, from JSON or from YAML, which is all JSON and more; `ParseError` for anything else."""
    try:
        text = raw.decode("utf-8-sig")
        document = _from_json(text.encode()) if json_only else _from_yaml(text)
        if document is None:
            return {}
        if not isinstance(document, dict):
            raise ParseError(f"expected fields and values, not a {type(document).__name__}")
        _check_values(document)
    except ParseError:
        raise
    except UnicodeError:
        raise ParseError("not text in UTF-8") from None
    except (ValueError, OverflowError) as error:
        raise ParseError(f"not valid {'JSON' if json_only else 'YAML'}: {' '.join(str(error).split())}") from None
    return document


def _from_json(raw: bytes) -> Any:
    try:
        check_depth(raw)
    except ParseError as error:
        raise ParseError(f"not valid JSON: {error}") from None
    return parse_json(raw, _distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    group = dict(pairs)
    if len(group) < len(pairs):
        names = [name for name, _ in pairs]
        raise ParseError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return group


def _from_yaml(text: str) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # of libyaml, where it is there: ten times faster
    try:
        _check_events(text, loader)
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        raise ValueError(error) from None
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:  # of PyYAML itself: `!!int ""`
        raise ValueError(f"{type(error).__name__} {error}") from None


def _check_events(text: str, loader: type[yaml.SafeLoader]) -> None:
    """The structure alone, before anything is made of it."""
    import yaml

    resolver = yaml.resolver.Resolver()
    sizes: dict[str, int] = {}  # by anchor: values, with all that aliases in it stand for
    groups: list[_Group] = [_Group(None, mapping=False)]
    for event in yaml.parse(text, loader):
        size = 1
        if isinstance(event, yaml.CollectionStartEvent):
            groups.append(_Group(event.anchor, mapping=isinstance(event, yaml.MappingStartEvent)))
            if len(groups) > DEEPEST:
                raise ParseError(f"nested more than {DEEPEST} deep")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            closed = groups.pop()
            size = closed.size
            if closed.anchor:
                sizes[closed.anchor] = size
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ParseError(f"*{event.anchor} stands for nothing that comes before it")
            size = sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            size += len(event.value) // LONGEST_NUMBER
            if event.anchor:
                sizes[event.anchor] = size
            plain = event.tag is None and event.implicit[0]
            tag = event.tag or resolver.resolve(yaml.ScalarNode, event.value, (plain, not plain))
            if tag.endswith((":int", ":float")) and len(event.value) > LONGEST_NUMBER:
                raise ParseError(f"a number of {len(event.value)} characters. Allowed: up to {LONGEST_NUMBER}")
            groups[-1].check_name(event.value)
        else:
            continue
        groups[-1].add(size)


class _Group:
    """A list or a mapping that is being read."""

    def __init__(self, anchor: str | None, *, mapping: bool) -> None:
        self.anchor, self.mapping, self.size = anchor, mapping, 1
        self.names: set[str] = set()
        self.parts = 0

    def add(self, size: int) -> None:
        self.parts += 1
        self.size += size
        if self.size > MOST_VALUES:
            raise ParseError(f"more than {MOST_VALUES:,} values, those counted that aliases repeat")

    def check_name(self, text: str) -> None:
        if self.mapping and self.parts % 2 == 0:
            if text in self.names:
                raise ParseError(f"{text[:80]!r} is given twice")
            self.names.add(text)


def _check_values(document: dict[Any, Any]) -> None:
    """Of what kind they are, and how many."""
    left: list[Any] = [document]
    count = 0
    while left:
        value = left.pop()
        count += 1
        if count > MOST_VALUES:
            raise ParseError(f"more than {MOST_VALUES:,} values")
        if isinstance(value, dict):
            left += [*value, *value.values()]
            if wrong := next((name for name in value if not isinstance(name, str)), None):
                raise ParseError(f"expected names of fields, got {str(wrong)[:80]!r}: write it in quotes")
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str):
            value.encode()
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise ParseError(f"{value} is not a number. Allowed: finite ones")
        elif isinstance(value, int):
            if abs(value) > LARGEST_WHOLE:
                raise ParseError(f"a whole number beyond {LARGEST_WHOLE:.0e}")
        elif value is not None:
            raise ParseError(f"expected text or a number, got a {type(value).__name__}: write it in quotes")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ParseError(f"{text[:LONGEST_NUMBER]} is too large for a number")
    return value


def _int(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ParseError(f"a number of {len(text)} characters. Allowed: up to {LONGEST_NUMBER}")
    return int(text)
