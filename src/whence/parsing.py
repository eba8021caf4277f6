"""Parsers for untrusted input: configurations in YAML or JSON, and stored documents in JSON.

Deep nesting, repetition by aliases and long numbers are refused before they take time or memory. Results hold only
mappings with distinct names, lists, text, finite numbers, booleans and None.
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
"""Levels of nesting of a document"""
LARGEST_CONFIG = 2**20
"""Bytes"""
MOST_VALUES = 30_000
"""Values of a configuration, repetitions by aliases included; long text counts as several"""
LONGEST_NUMBER = 40
"""Characters of a written number; Python writes at most 24"""
TOO_LONG = f"expected numbers of at most {LONGEST_NUMBER} characters, got one of {{}}"
LARGEST_WHOLE = 2**64
# possessive, and an open string ends with the document: the time is linear whatever is written
STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
HALF_CHARACTERS = re.compile(rb"\\u[dD][89a-fA-F]")
NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class ParseError(ValueError):
    """A document is not valid; the message continues a sentence about it."""


def _refuse_constant(name: str) -> float:
    raise ParseError(f"expected a finite number, got {name}")


def parse_json(
    raw: bytes,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
    constant: Callable[[str], float] = _refuse_constant,
) -> Any:
    """Parse JSON in UTF-8. Call `check_depth` first.

    pairs: makes a mapping of its items; for documents written by people. constant: reads `NaN` and `Infinity`.
    """
    # decoded here, because `json` also accepts other encodings and lone surrogates
    document = json.loads(
        raw.decode(), parse_constant=constant, parse_float=_float, parse_int=_int, object_pairs_hook=pairs
    )
    if HALF_CHARACTERS.search(raw):  # pairs of them are valid
        json.dumps(document, ensure_ascii=False).encode()
    return document


def check_depth(raw: bytes) -> None:
    """Raise `ParseError` for deep nesting, so that documents can be processed by recursion."""
    brackets = STRINGS.sub(b"", raw).translate(None, NO_BRACKETS)
    for _ in range(DEEPEST):
        if not brackets:
            return
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    if brackets:
        raise ParseError(f"brackets do not match, or are nested more than {DEEPEST} deep")


def parse_config(raw: bytes, *, json_only: bool) -> dict[str, Any]:
    """The fields and values of a JSON or YAML document; `ParseError` if it holds anything else."""
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

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where it is available, is ten times faster
    try:
        _check_events(text, loader)
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        raise ValueError(error) from None
    except (
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:  # of PyYAML itself: `!!int ""`
        raise ValueError(f"{type(error).__name__} {error}") from None


def _check_events(text: str, loader: type[yaml.SafeLoader]) -> None:
    """Check the structure before values are constructed."""
    import yaml

    resolver = yaml.resolver.Resolver()
    sizes: dict[str, int] = {}  # by anchor: number of values, aliases expanded
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
                raise ParseError(f"alias *{event.anchor} has no anchor before it")
            size = sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            size += len(event.value) // LONGEST_NUMBER
            if event.anchor:
                sizes[event.anchor] = size
            plain = event.tag is None and event.implicit[0]
            tag = event.tag or resolver.resolve(yaml.ScalarNode, event.value, (plain, not plain))
            if tag.endswith((":int", ":float")) and len(event.value) > LONGEST_NUMBER:
                raise ParseError(TOO_LONG.format(len(event.value)))
            groups[-1].check_name(event.value)
        else:
            continue
        groups[-1].add(size)


class _Group:
    """A list or a mapping during parsing."""

    def __init__(self, anchor: str | None, *, mapping: bool) -> None:
        self.anchor, self.mapping, self.size = anchor, mapping, 1
        self.names: set[str] = set()
        self.parts = 0

    def add(self, size: int) -> None:
        self.parts += 1
        self.size += size
        if self.size > MOST_VALUES:
            raise ParseError(f"more than {MOST_VALUES:,} values, repetitions by aliases included")

    def check_name(self, text: str) -> None:
        if self.mapping and self.parts % 2 == 0:
            if text in self.names:
                raise ParseError(f"{text[:80]!r} is given twice")
            self.names.add(text)


def _check_values(document: dict[Any, Any]) -> None:
    """Check the types of all values, and their number."""
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
                raise ParseError(f"expected names of fields, got {str(wrong)[:80]!r}. Write it in quotes")
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str):
            value.encode()
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise ParseError(f"expected a finite number, got {value}")
        elif isinstance(value, int):
            if abs(value) > LARGEST_WHOLE:
                raise ParseError(f"expected integers up to {LARGEST_WHOLE:.0e} in size, got a larger one")
        elif value is not None:
            raise ParseError(f"expected text or a number, got a {type(value).__name__}. Write it in quotes")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ParseError(f"{text[:LONGEST_NUMBER]} is too large for a number")
    return value


def _int(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ParseError(TOO_LONG.format(len(text)))
    return int(text)
